package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// scarce is how much room there must be on the volume for roles to work, in bytes: the consensus store makes its log in pieces of 64 MB, and cannot
// start where there is no room for two.
const scarce = 128 << 20

// Shortage says that the volume has so little room left that no role can be expected to work; "" if it has enough, or if that cannot be found out. What a
// file system keeps for root does not count, since roles are not root.
func (l Layout) Shortage() string {
	var found unix.Statfs_t
	if err := unix.Statfs(l.Data, &found); err != nil {
		return ""
	}
	if found.Flags&unix.ST_RDONLY != 0 {
		return fmt.Sprintf("the node's volume %s can only be read: its file system met an error, or its disk was full, and protects what it holds: see the kernel's log, make room, and start reeved again (or the machine)", l.Data)
	}
	left, inodes := found.Bavail*uint64(found.Frsize), found.Ffree
	switch {
	case left < scarce:
		return fmt.Sprintf("the disk is full: the node's volume %s has %d MiB left, and roles need up to %d: make room on it", l.Data, left>>20, scarce>>20)
	case inodes == 0 && found.Files > 0:
		return fmt.Sprintf("the disk is full: the file system of the node's volume %s takes no more files: remove some", l.Data)
	}
	return ""
}
