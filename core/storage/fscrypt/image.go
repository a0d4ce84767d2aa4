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

// innerName is the encrypted directory in the image's file system, whose root cannot be encrypted.
const innerName = "volume"

// image is a volume in a file system in a file.
type image struct{ Config }

// draft is the image's name while it is being made.
func (i *image) draft() string { return i.Image + ".draft" }

// inner is the encrypted directory at the core's mount.
func (i *image) inner() encrypted {
	return encrypted{path: filepath.Join(i.Mount, innerName), step: i.Step}
}

func (i *image) Describe() volume.Description {
	description := i.describe(i.Image)
	// The root of the image's file system, which cannot be encrypted.
	description.Clear = i.Mount
	return description
}

// view says what is mounted of the image.
type view struct {
	// mounted is the mount of its file system; nil if there is none. draft says that it is an image that was never completed.
	mounted *volume.Mount
	draft   bool
	// bound says that the encrypted directory is mounted at the data directory.
	bound bool
}

// look finds out what is mounted. It fails if something else is mounted there.
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
			// The volume is mounted over the data directory, so what lies below does not matter.
			return view{}, err
		}
		return view{}, &volume.DamagedError{Location: i.Data, Problem: fmt.Sprintf("the image %s is mounted there instead of at %s: stop what uses it and unmount it (`umount %s`)", i.Image, i.Mount, i.Data)}
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
		return false, false, &volume.DamagedError{Location: i.Image, Problem: fmt.Sprintf("the image file was removed while in use: copy the content of %s elsewhere before you stop anything", i.Data)}
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

// check fails if the image is incomplete or damaged.
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
		return errors.Join(&volume.DamagedError{Location: i.Image, Problem: "it is missing: mount the disk that holds it, or restore it from a backup. Keep the system directory, without which nothing opens the image"}, err)
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
		if err := volume.MakeMountPoint(i.Data); err != nil {
			return err
		}
	}
	if err := i.open(seen, key); err != nil {
		// Undo what this call did, and keep what was there before.
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
		i.reallocate(file)
		if err := i.mount(file); err != nil {
			return err
		}
	}
	inner := i.inner()
	if !exists(inner.path) {
		return &volume.DamagedError{Location: i.Image, Problem: "its file system is not a node's volume: restore it from a backup, or name another path (volume.fscrypt.image.path)"}
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

// mount mounts a file's file system for the core only, and closes the file: the loop device keeps it open.
func (i *image) mount(file *os.File) error {
	defer func() { _ = file.Close() }()
	if err := storage.MakeDirectory(i.Mount, 0o700); err != nil {
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
	// The root of the file system is for the core only, whatever mode is on the disk.
	if err := os.Chmod(i.Mount, 0o700); err != nil && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return nil
}

func (i *image) Rotate(context.Context, *keys.Secret, *keys.Secret) error { return volume.ErrFixedKey }
