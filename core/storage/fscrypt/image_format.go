package fscrypt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func (i *image) Format(ctx context.Context, key *keys.Secret) error {
	if err := needRoot("make and mount " + i.Image); err != nil {
		return err
	}
	exists, err := i.exists()
	if err != nil {
		return err
	}
	if exists {
		return i.formatted(ctx, key)
	}
	seen, err := i.look()
	if err != nil {
		return err
	}
	// An earlier try may have left the draft mounted.
	if err := i.unmount(ctx, seen); err != nil {
		return err
	}
	if err := volume.CheckEmpty(i.Data); err != nil {
		return err
	}
	if err := i.make(ctx, key); err != nil {
		return errors.Join(err, i.discard(context.WithoutCancel(ctx)))
	}
	return nil
}

// formatted succeeds if an earlier try with the same key has completed the image: no other volume has that key.
func (i *image) formatted(ctx context.Context, key *keys.Secret) error {
	state, err := i.State(ctx)
	var damaged *volume.DamagedError
	if errors.As(err, &damaged) {
		return &volume.NotEmptyError{Location: i.Image, Found: "a file that is not this node's volume (" + damaged.Problem + ")"}
	}
	if err != nil {
		return err
	}
	if state == volume.Open {
		err = i.inner().unlock(key)
	} else if err = i.Open(ctx, key); err == nil {
		return i.Close(ctx)
	}
	if errors.Is(err, volume.ErrWrongKey) {
		return &volume.NotEmptyError{Location: i.Image, Found: "the volume of another node, or of an earlier life of this one"}
	}
	return err
}

// discard removes what a failed try left.
func (i *image) discard(ctx context.Context) error {
	seen, err := i.look()
	if err != nil {
		return err
	}
	if err := i.unmount(ctx, seen); err != nil {
		return err
	}
	if err := os.Remove(i.draft()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return nil
}

// make makes the image as a draft and renames it when it is complete.
func (i *image) make(ctx context.Context, key *keys.Secret) error {
	if err := i.checkSize(); err != nil {
		return err
	}
	i.Step("draft")
	if err := os.Remove(i.draft()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fscrypt: %w", err)
	}
	file, err := os.OpenFile(i.draft(), os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("fscrypt: make the image: %w", err)
	}
	if err := errors.Join(i.allocate(file), file.Close()); err != nil {
		return err
	}
	i.Step("mkfs")
	if err := i.mkfs(ctx); err != nil {
		return err
	}
	if file, err = takeImage(i.draft()); err != nil {
		return err
	}
	// mkfs may have punched holes where zeros were to be written.
	if err := i.allocate(file); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := i.mount(file); err != nil {
		return err
	}
	if err := i.fill(key); err != nil {
		return err
	}
	seen, err := i.look()
	if err != nil {
		return err
	}
	if err := i.unmount(ctx, seen); err != nil {
		return err
	}
	if err := syncFile(i.draft()); err != nil {
		return err
	}
	i.Step("rename")
	if err := os.Rename(i.draft(), i.Image); err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return storage.SyncDirectory(filepath.Dir(i.Image))
}

// allocate gives the image its size and, where the file system can, all of its blocks. Otherwise a disk that fills up later would break the file
// system in the image for good.
func (i *image) allocate(file *os.File) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, i.Size)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return i.fullError()
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		i.Log.Warn("the file system cannot allocate the image in advance: writes to the volume fail when the disk below is full", "image", i.Image, "size", i.Size)
		err = file.Truncate(i.Size)
	}
	if err != nil {
		return fmt.Errorf("fscrypt: make the image: %w", err)
	}
	return nil
}

// reallocate allocates the blocks that the image has lost since it was made: the kernel punches holes instead of writing zeros. It keeps on without them
// if the disk is full.
func (i *image) reallocate(file *os.File) {
	var info unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &info)
	if err != nil || info.Blocks*512 >= info.Size {
		return
	}
	if err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size); err != nil {
		i.Log.Warn("the disk has no room for all blocks of the image: writes to the volume may fail", "image", i.Image, "size", info.Size, "has", info.Blocks*512, "error", err)
	}
}

// fullError is the error for an image that does not fit on the disk.
func (i *image) fullError() error {
	left, err := i.left()
	if err != nil {
		return err
	}
	return &SizeError{Image: i.Image, Size: i.Size, Least: i.Size, Left: left}
}

// left returns the free bytes where the image will be.
func (i *image) left() (int64, error) {
	directory, err := storage.Nearest(filepath.Dir(i.Image))
	if err != nil {
		return 0, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(directory, &disk); err != nil {
		return 0, fmt.Errorf("fscrypt: %s: %w", directory, err)
	}
	return int64(min(disk.Bavail, 1<<40)) * int64(disk.Frsize), nil
}

// checkSize fails with *SizeError if the image is too small or does not fit.
func (i *image) checkSize() error {
	if i.Size < MinSize {
		return &SizeError{Image: i.Image, Size: i.Size, Least: MinSize, Left: -1}
	}
	left, err := i.left()
	if err != nil {
		return err
	}
	if left < i.Size {
		return i.fullError()
	}
	return nil
}

func (i *image) mkfs(ctx context.Context) error {
	if _, err := i.mkfsProgram().Run(ctx); err != nil {
		return fmt.Errorf("fscrypt: make a file system in %s: %w", i.draft(), err)
	}
	return nil
}

func (i *image) mkfsProgram() volume.Program {
	return volume.Program{Name: "mkfs.ext4", Package: "e2fsprogs", Args: []string{
		// The file is all zeros, so mkfs needs neither to write zeros nor to discard blocks. After an error, the file system must not be written to.
		"-q", "-F", "-b", "4096", "-m", "1", "-O", "encrypt", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=1", "-e", "remount-ro", "-L", "reeve", i.draft(),
	}}
}

// CheckFormat returns what Format would refuse of a volume of which there is nothing.
func (i *image) CheckFormat() (problems []error) {
	for _, err := range []error{needRoot("make and mount " + i.Image), i.mkfsProgram().Check(), volume.CheckEmpty(i.Data), i.checkSize()} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// fill makes the encrypted directory in the mounted image.
func (i *image) fill(key *keys.Secret) error {
	if err := os.Chmod(i.Mount, 0o700); err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	inner := i.inner()
	i.Step("directory")
	if err := storage.MakeDirectory(inner.path, 0o700); err != nil {
		return err
	}
	return inner.format(key)
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return nil
}
