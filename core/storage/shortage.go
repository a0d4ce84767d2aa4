package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// scarce is the free space in bytes below which roles cannot work: the consensus store preallocates its log in pieces of 64 MB and needs room for two
// to start.
const scarce = 128 << 20

// Shortage says why the volume has too little room for roles; "" if it has enough, or if the file system cannot be asked. Blocks reserved for root do
// not count, since roles are not root.
func (l Layout) Shortage() string {
	var found unix.Statfs_t
	if err := unix.Statfs(l.Data, &found); err != nil {
		return ""
	}
	if found.Flags&unix.ST_RDONLY != 0 {
		return fmt.Sprintf("the node's volume %s is mounted read-only, because its file system met an error: %s", l.Data, Repair)
	}
	left, inodes := found.Bavail*uint64(found.Frsize), found.Ffree
	switch {
	case left < scarce:
		return fmt.Sprintf("the disk is full: the node's volume %s has %d MiB left, and roles need up to %d: free some space", l.Data, left>>20, scarce>>20)
	case inodes == 0 && found.Files > 0:
		return fmt.Sprintf("the disk is full: the node's volume %s has no free inodes: remove some files", l.Data)
	}
	return ""
}
