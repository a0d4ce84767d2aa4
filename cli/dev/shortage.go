package dev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// scarce is how little room on the disk may be why a node does not come up, in bytes: it is what reeved takes for too little as well.
const scarce = 128 << 20

// noWrites is what to do where a file system takes no writes. Where it has met an error, statfs does not say so.
const noWrites = "Its file system takes no writes: it was mounted read-only, or has met an error, of which the kernel's log speaks. Stop the nodes (reeve dev down), unmount it, repair it (fsck), mount it for writing and start them, or give another directory with --dir. "

// takesWrites tries a write in the directory.
func (d *Directory) takesWrites() error {
	probe, err := os.CreateTemp(d.State, ".probe.*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// refusesWrites reports whether an error is that of a file system that takes no writes.
func refusesWrites(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.ESHUTDOWN)
}

// shortage is what an error has to say if the disk of the directory is full, or takes no writes: the node itself may not have been able to say so in its log. Otherwise "".
func (d *Directory) shortage() string {
	if refusesWrites(d.takesWrites()) {
		return noWrites
	}
	var found unix.Statfs_t
	if err := unix.Statfs(d.State, &found); err != nil {
		return ""
	}
	if left := found.Bavail * uint64(found.Frsize); left < scarce {
		return fmt.Sprintf("The disk is full: %s has %d MiB left. Make room on it. ", d.State, left>>20)
	}
	return ""
}
