package dev

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// scarce is how little room on the disk may be why a node does not come up, in bytes: it is what reeved takes for too little as well.
const scarce = 128 << 20

// shortage is what an error has to say if the disk of the directory is full: the node itself may have found no room to say so in its log. Otherwise "".
func (d *Directory) shortage() string {
	var found unix.Statfs_t
	if err := unix.Statfs(d.State, &found); err != nil {
		return ""
	}
	if left := found.Bavail * uint64(found.Frsize); left < scarce {
		return fmt.Sprintf("The disk is full: %s has %d MiB left. Make room on it. ", d.State, left>>20)
	}
	return ""
}
