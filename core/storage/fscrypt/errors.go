package fscrypt

import "fmt"

// UnsupportedError says that the file system cannot encrypt a directory.
type UnsupportedError struct {
	// Path is the directory. Type and Source are its file system's, as far as they are known.
	Path, Type, Source string
	// Mounted says that the directory is a mount point, which cannot be encrypted.
	Mounted bool
}

func (e *UnsupportedError) Error() string {
	if e.Mounted {
		return fmt.Sprintf("fscrypt: %s is a mount point and cannot be encrypted: name a directory below it (directories.data), let the node make an image (volume.fscrypt.image), or use the kind luks", e.Path)
	}
	enable := ""
	if e.Type == "ext4" {
		enable = fmt.Sprintf("enable it with `tune2fs -O encrypt %s`, ", e.Source)
	}
	return fmt.Sprintf("fscrypt: the file system of %s (%s on %s) does not support encryption: %slet the node make an image (volume.fscrypt.image), or use the kind luks", e.Path, e.Type, e.Source, enable)
}

// SizeError says that an image was not made because it is too small or does not fit on the disk.
type SizeError struct {
	Image string
	// Size is the requested size, Least the smallest allowed one, in bytes.
	Size, Least int64
	// Left is the free space on the disk in bytes; -1 if space is not the problem.
	Left int64
}

func (e *SizeError) Error() string {
	if e.Left >= 0 {
		return fmt.Sprintf("fscrypt: the image %s is not made because its disk is full (%d MiB left, %d needed): make room, or put the image elsewhere (volume.fscrypt.image.path)", e.Image, e.Left>>20, e.Least>>20)
	}
	return fmt.Sprintf("fscrypt: the image %s is not made because %d bytes are too few: give it at least %d (volume.fscrypt.image.size_bytes)", e.Image, e.Size, e.Least)
}

// AttachedError says that somebody else uses an image.
type AttachedError struct {
	Image string
	// Device is its loop device; empty if it was not found, for instance because it is another container's.
	Device string
	// Mounts are the mount points of Device.
	Mounts []string
}

func (e *AttachedError) Error() string {
	switch {
	case e.Device == "":
		return fmt.Sprintf("fscrypt: the image %s is in use by another process or another container: stop what uses it (`losetup --associated %s`, `lsof %s`)", e.Image, e.Image, e.Image)
	case len(e.Mounts) == 0:
		return fmt.Sprintf("fscrypt: the image %s is already attached to %s, not by this node: run `losetup --detach %s`", e.Image, e.Device, e.Device)
	}
	return fmt.Sprintf("fscrypt: the image %s is already attached to %s and mounted at %s, not by this node: run `umount %s`", e.Image, e.Device, e.Mounts[0], e.Mounts[0])
}

// LoopError says that there is no loop device for the image.
type LoopError struct {
	// Problem says why, and what to do.
	Problem string
	Err     error
}

func (e *LoopError) Error() string {
	return fmt.Sprintf("fscrypt: no loop device for the image: %s (%v)", e.Problem, e.Err)
}

func (e *LoopError) Unwrap() error { return e.Err }
