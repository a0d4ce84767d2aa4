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
	// The data directory is unmounted, so only the core can open anything. What Users finds from here on is final.
	if err := i.shut(ctx, seen, place); err != nil {
		var busy *volume.BusyError
		now, look := i.look()
		if look != nil {
			return errors.Join(err, look)
		}
		// A BusyError may also come after the unmount, because the loop device is still held. Then there is nothing to bind again.
		if errors.As(err, &busy) && seen.bound && now.mounted != nil {
			busy.Location = i.Image
			err = errors.Join(err, volume.Bind(seen.mounted, innerName, i.Data))
		}
		return err
	}
	return nil
}

// shut removes the key and unmounts.
func (i *image) shut(ctx context.Context, seen view, place volume.Place) error {
	if !seen.draft && exists(i.inner().path) {
		// A file system that met an error is read-only and keeps its keys until it is unmounted, which is next.
		if err := i.inner().lock(ctx, place); err != nil && !errors.Is(err, unix.EROFS) {
			return err
		}
	}
	return i.unmount(ctx, seen)
}

// unmount unmounts the file system, with which the kernel forgets its keys, and verifies that the image is detached.
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

// proveGone waits until the loop device has detached its file, which it does by itself.
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
			return i.heldError(device)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (i *image) heldError(device uint64) error {
	users, err := volume.Users(volume.Place{Device: device})
	if err != nil {
		return err
	}
	// A process that was just started in its own mount namespace may hold it, and soon lets go.
	return &volume.BusyError{Location: fmt.Sprintf("%s (unmounted, its key removed, but still held by /dev/loop%d)", i.Image, unix.Minor(device)), Users: users}
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
