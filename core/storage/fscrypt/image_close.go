package fscrypt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

func (i *image) Close(ctx context.Context) error {
	if err := needRoot("unmount " + i.Image); err != nil {
		return err
	}
	seen, err := i.look()
	if err != nil {
		return err
	}
	if seen.mounted == nil {
		return i.proveDetached(ctx)
	}
	place := volume.Place{Device: seen.mounted.Device}
	if seen.bound {
		i.Step("unbind")
		if err := volume.Release(ctx, i.Data, i.Image, place); err != nil {
			return err
		}
	}
	// From here on nobody but the core can open anything, so it is decided once for all whether something is open.
	if err := i.shut(ctx, seen, place); err != nil {
		var busy *volume.BusyError
		now, look := i.look()
		if look != nil {
			return errors.Join(err, look)
		}
		// What is unmounted by then is used no more, also if it is held still.
		if errors.As(err, &busy) && seen.bound && now.mounted != nil {
			busy.Location = i.Image
			err = errors.Join(err, volume.Bind(seen.mounted, innerName, i.Data))
		}
		return err
	}
	return nil
}

// shut takes the key and unmounts.
func (i *image) shut(ctx context.Context, seen view, place volume.Place) error {
	if !seen.draft && exists(i.inner().path) {
		// A file system that met an error is read-only, and then gives its keys back only when it is unmounted, which comes next.
		if err := i.inner().lock(ctx, place); err != nil && !errors.Is(err, unix.EROFS) {
			return err
		}
	}
	return i.unmount(ctx, seen)
}

// unmount unmounts the file system, with which the kernel forgets its keys, and proves that the image is attached no more.
func (i *image) unmount(ctx context.Context, seen view) error {
	if seen.mounted != nil {
		i.Step("unmount")
		if err := volume.Release(ctx, i.Mount, i.Image, volume.Place{Device: seen.mounted.Device}); err != nil {
			return err
		}
		if err := i.proveGone(ctx, seen.mounted.Device); err != nil {
			return err
		}
	}
	return i.proveDetached(ctx)
}

// proveGone waits until a loop device that lets go of its file by itself has done so.
func (i *image) proveGone(ctx context.Context, device uint64) error {
	for until := time.Now().Add(volume.Patience); ; {
		path, err := backing(device)
		if err != nil {
			return err
		}
		mine := false
		if path != "" {
			var draft bool
			if mine, draft, err = i.owns(device); err != nil {
				return err
			}
			mine = mine || draft
		}
		if !mine {
			return nil
		}
		if !time.Now().Before(until) {
			return i.held(device)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (i *image) held(device uint64) error {
	users, err := volume.Users(volume.Place{Device: device})
	if err != nil {
		return err
	}
	// A process that has just been started in mounts of its own may hold it, and lets go of it by itself.
	return &volume.BusyError{Location: fmt.Sprintf("%s (unmounted, its key forgotten, and still held by /dev/loop%d)", i.Image, unix.Minor(device)), Users: users}
}

// proveDetached fails if the image is attached to a loop device.
func (i *image) proveDetached(context.Context) error {
	exists, err := i.exists()
	if err != nil || !exists {
		return err
	}
	device, number, err := loopOf(i.Image)
	if err != nil || device == "" {
		return err
	}
	return attached(i.Image, device, number)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
