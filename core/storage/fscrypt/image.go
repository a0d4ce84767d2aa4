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
	"github.com/reeveproject/reeve/core/storage/volume"
)

// innerName is the directory of the image's file system that is encrypted: its root cannot be.
const innerName = "volume"

// image is the volume in a file system that the node has made in a file.
type image struct{ Config }

// draft is the image while it is being made.
func (i *image) draft() string { return i.Image + ".draft" }

// inner is the encrypted directory, as the core sees it.
func (i *image) inner() encrypted {
	return encrypted{path: filepath.Join(i.Mount, innerName), step: i.Step}
}

func (i *image) Describe() volume.Description {
	description := i.describe(i.Image)
	// The root directory of the image's file system, which cannot be encrypted.
	description.Clear = i.Mount
	return description
}

// view is what is mounted of the image.
type view struct {
	// mounted is the mount of its file system, nil if there is none; draft says that it is that of an image that was never completed.
	mounted *volume.Mount
	draft   bool
	// bound says that the encrypted directory is seen at the data directory.
	bound bool
}

// look finds out what is mounted. An error names what is in the way.
func (i *image) look() (view, error) {
	mounted, err := volume.MountAt(i.Mount)
	if err != nil {
		return view{}, err
	}
	data, err := volume.MountAt(i.Data)
	if err != nil {
		return view{}, err
	}
	if mounted == nil {
		if data == nil {
			return view{}, nil
		}
		if mine, _, err := i.owns(data.Device); err != nil || !mine {
			// Whatever lies below the data directory is no affair of the volume that is put over it.
			return view{}, err
		}
		return view{}, &volume.DamagedError{Location: i.Data, Problem: fmt.Sprintf("the image %s is mounted there, and not at %s as the node does it: stop what uses it and unmount it (`umount %s`)", i.Image, i.Mount, i.Data)}
	}
	mine, draft, err := i.owns(mounted.Device)
	if err != nil {
		return view{}, err
	}
	if !mine && !draft {
		return view{}, &volume.DamagedError{Location: i.Mount, Problem: fmt.Sprintf("something else is mounted there (%s): unmount it (`umount %s`), or give the node another system directory", mounted.Source, i.Mount)}
	}
	bound := data != nil && data.Device == mounted.Device && data.Root == filepath.Join(mounted.Root, innerName)
	return view{mounted: mounted, draft: draft, bound: bound}, nil
}

// owns reports whether a device is the loop device of the image, or of its draft.
func (i *image) owns(device uint64) (mine, draft bool, err error) {
	path, err := backing(device)
	if err != nil || path == "" {
		return false, false, err
	}
	same := func(mine string) bool {
		a, errA := os.Stat(path)
		b, errB := os.Stat(mine)
		return errA == nil && errB == nil && os.SameFile(a, b)
	}
	if same(i.Image) {
		return true, false, nil
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(i.Image)); err == nil && path == filepath.Join(real, filepath.Base(i.Image))+" (deleted)" {
		return false, false, &volume.DamagedError{Location: i.Image, Problem: fmt.Sprintf("the image was removed while it is in use: copy what %s shows to another place before anything is stopped", i.Data)}
	}
	base := filepath.Base(path)
	return false, same(i.draft()) || base == filepath.Base(i.draft()) || base == filepath.Base(i.draft())+" (deleted)", nil
}

func (i *image) exists() (bool, error) {
	_, err := os.Lstat(i.Image)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fscrypt: %w", err)
	}
	return true, nil
}

func (i *image) State(context.Context) (volume.State, error) {
	seen, err := i.look()
	if err != nil {
		return volume.Absent, err
	}
	exists, err := i.exists()
	if err != nil || !exists {
		return volume.Absent, err
	}
	if err := i.check(); err != nil {
		return volume.Closed, err
	}
	if !seen.bound {
		return volume.Closed, nil
	}
	unlocked, err := i.inner().unlocked()
	if err != nil || !unlocked {
		return volume.Closed, err
	}
	return volume.Open, nil
}

// check fails if the image is not whole.
func (i *image) check() error {
	file, err := os.OpenFile(i.Image, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("fscrypt: open the image: %w", err)
	}
	return errors.Join(checkImage(file), file.Close())
}

func (i *image) Open(ctx context.Context, key *keys.Secret) error {
	if err := needRoot("mount " + i.Image); err != nil {
		return err
	}
	if state, err := i.State(ctx); err != nil || state == volume.Open {
		return err
	}
	if exists, err := i.exists(); err != nil || !exists {
		return errors.Join(&volume.DamagedError{Location: i.Image, Problem: "it is missing: restore it, or remove the node from its cluster and start with an empty system directory"}, err)
	}
	seen, err := i.look()
	if err != nil {
		return err
	}
	if seen.draft {
		if err := i.unmount(ctx, seen); err != nil {
			return err
		}
		seen = view{}
	}
	if !seen.bound {
		if err := i.checkData(); err != nil {
			return err
		}
	}
	if err := i.open(seen, key); err != nil {
		// What this call did is undone, what was there before stays.
		if seen.mounted == nil {
			err = errors.Join(err, i.Close(context.WithoutCancel(ctx)))
		}
		return err
	}
	return nil
}

func (i *image) open(seen view, key *keys.Secret) error {
	if seen.mounted == nil {
		file, err := takeImage(i.Image)
		if err != nil {
			return err
		}
		i.refill(file)
		if err := i.mount(file); err != nil {
			return err
		}
	}
	inner := i.inner()
	if !exists(inner.path) {
		return &volume.DamagedError{Location: i.Image, Problem: "its file system is not that of a node: restore it from a backup, or name another path (volume.fscrypt.image.path)"}
	}
	if err := inner.unlock(key); err != nil || seen.bound {
		return err
	}
	mounted, err := volume.MountAt(i.Mount)
	if err != nil {
		return err
	}
	i.Step("bind")
	return volume.Bind(mounted, innerName, i.Data)
}

// mount mounts the file system of a file for the core alone, and closes the file: the loop device keeps it.
func (i *image) mount(file *os.File) error {
	defer func() { _ = file.Close() }()
	if err := volume.MakeDirectory(i.Mount, 0o700); err != nil {
		return err
	}
	i.Step("attach")
	device, err := attach(file)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	i.Step("mount")
	if err := volume.MountFS(device.Name(), i.Mount); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) || errors.Is(err, unix.EIO) {
			return &volume.DamagedError{Location: file.Name(), Problem: fmt.Sprintf("its file system cannot be mounted (%v): look at it with `e2fsck -f %s`, or restore it from a backup", err, file.Name())}
		}
		return err
	}
	// The root of its file system is for the core alone, whatever the disk says.
	if err := os.Chmod(i.Mount, 0o700); err != nil && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return nil
}

// checkData fails if the volume would hide something at the data directory.
func (i *image) checkData() error {
	found, err := volume.Content(i.Data)
	if err != nil {
		return err
	}
	if found != "" {
		return &volume.DamagedError{Location: i.Data, Problem: fmt.Sprintf("the volume would be mounted over it, and it is not empty (there is %s): move that away", found)}
	}
	return volume.MakeDirectory(i.Data, 0o700)
}

func (i *image) Rotate(context.Context, *keys.Secret, *keys.Secret) error { return volume.ErrFixedKey }
