package fscrypt

import "fmt"

// UnsupportedError says that a directory cannot be encrypted by its file system.
type UnsupportedError struct {
	// Path is the directory that was to be encrypted, and Type and Source its file system and what that lies on, as far as they are known.
	Path, Type, Source string
	// Mounted says that the directory is where a file system is mounted, which is the reason.
	Mounted bool
}

func (e *UnsupportedError) Error() string {
	if e.Mounted {
		return fmt.Sprintf("fscrypt: %s is where a file system is mounted, and such a directory cannot be encrypted: name one in it (directories.data), have the node make an image (volume.fscrypt.image), or use the kind luks", e.Path)
	}
	enable := ""
	if e.Type == "ext4" {
		enable = fmt.Sprintf("enable it with `tune2fs -O encrypt %s`, ", e.Source)
	}
	return fmt.Sprintf("fscrypt: the file system of %s (%s on %s) has no encryption: %shave the node make an image (volume.fscrypt.image), or use the kind luks", e.Path, e.Type, e.Source, enable)
}

// SizeError says that an image is not made since it would be too small, or has no room.
type SizeError struct {
	Image string
	// Size is how large it was to be made, and Least how large it must be, in bytes.
	Size, Least int64
	// Left is how much room the disk has for it, in bytes; -1: that is not the problem.
	Left int64
}

func (e *SizeError) Error() string {
	if e.Left >= 0 {
		return fmt.Sprintf("fscrypt: the image %s is not made, since its disk is full (%d MiB left, at least %d are needed): make room, or put the image elsewhere (volume.fscrypt.image.path)", e.Image, e.Left>>20, e.Least>>20)
	}
	return fmt.Sprintf("fscrypt: the image %s is not made with %d bytes, which is too small: give it at least %d (volume.fscrypt.image.size_bytes)", e.Image, e.Size, e.Least)
}

// AttachedError says that an image is in use by somebody else.
type AttachedError struct {
	Image string
	// Device is the loop device to which it is attached; empty: it could not be found, since it is that of another container, say.
	Device string
	// Mounts are where that is mounted.
	Mounts []string
}

func (e *AttachedError) Error() string {
	switch {
	case e.Device == "":
		return fmt.Sprintf("fscrypt: the image %s is held by another process or in another container: stop what uses it (`losetup --associated %s`, `lsof %s`)", e.Image, e.Image, e.Image)
	case len(e.Mounts) == 0:
		return fmt.Sprintf("fscrypt: the image %s is attached to %s already, and not by this node: detach it with `losetup --detach %s`", e.Image, e.Device, e.Device)
	}
	return fmt.Sprintf("fscrypt: the image %s is attached to %s and mounted at %s already, and not by this node: unmount it there (`umount %s`)", e.Image, e.Device, e.Mounts[0], e.Mounts[0])
}

// LoopError says that no loop device can be had.
type LoopError struct {
	// Problem says why, and what to do.
	Problem string
	Err     error
}

func (e *LoopError) Error() string {
	return fmt.Sprintf("fscrypt: no loop device for the image: %s (%v)", e.Problem, e.Err)
}

func (e *LoopError) Unwrap() error { return e.Err }
