package luks

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func (c *container) Format(ctx context.Context, key *keys.Secret) error {
	if err := needRoot("format " + c.Device); err != nil {
		return err
	}
	content, err := c.inspect()
	if err != nil {
		return err
	}
	if content.mine && content.complete {
		// An earlier try may have come to its end without being able to say so. The key tells.
		if err := c.test(ctx, key); errors.Is(err, volume.ErrWrongKey) {
			return &volume.NotEmptyError{Location: c.Device, Found: "a volume of this node with another key, from an earlier life of it"}
		} else if err != nil {
			return err
		}
		return nil
	}
	if !content.resumable() {
		return &volume.NotEmptyError{Location: c.Device, Found: content.found}
	}
	found, err := volume.Content(c.Data)
	if err != nil {
		return err
	}
	if found != "" {
		return &volume.NotEmptyError{Location: c.Data, Found: found}
	}
	if err := needMapper(ctx); err != nil {
		return err
	}
	if mapping, err := c.mapping(); err != nil {
		return err
	} else if mapping != nil {
		// An earlier try left it open.
		if err := c.unmap(ctx); err != nil {
			return err
		}
	}
	return c.make(ctx, key)
}

// make makes the container and its file system. Whatever it is stopped at, inspect tells that it was not completed.
func (c *container) make(ctx context.Context, key *keys.Secret) error {
	c.Step("mark")
	if err := c.writeMark(c.mark()); err != nil {
		return err
	}
	c.Step("luks-format")
	args := append([]string{
		"luksFormat", "--batch-mode", "--type", "luks2", "--uuid", c.uuid, "--label", labelMaking, "--cipher", "aes-xts-plain64", "--key-size", "512",
		"--key-file", "-", "--keyfile-size", keySize,
	}, cheap()...)
	if err := c.cryptsetup(ctx, key, nil, append(args, c.Device)...); err != nil {
		return err
	}
	c.Step("unmark")
	if err := c.writeMark(nil); err != nil {
		return err
	}
	if _, err := c.open(ctx, key); err != nil {
		return err
	}
	c.Step("mkfs")
	_, err := volume.Program{Name: "mkfs.ext4", Package: "e2fsprogs", Args: []string{
		"-q", "-F", "-m", "1", "-e", "remount-ro", "-E", "nodiscard", "-L", "reeve", c.path(),
	}}.Run(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("luks: make a file system in %s: %w", c.Device, err), c.unmap(context.WithoutCancel(ctx)))
	}
	if err := c.unmap(ctx); err != nil {
		return err
	}
	c.Step("complete")
	return c.cryptsetup(ctx, nil, nil, "config", "--label", labelComplete, c.Device)
}

// writeMark writes the mark at the end of the device, or zeros in its place. *volume.NotEmptyError if somebody uses the device.
func (c *container) writeMark(mark []byte) error {
	// The kernel lets nobody have a device for himself that is mounted, or part of another device.
	device, err := os.OpenFile(c.Device, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return &volume.NotEmptyError{Location: c.Device, Found: "something that uses it now (it is mounted, say, or part of another device: `lsblk " + c.Device + "`)"}
	}
	if err != nil {
		return fmt.Errorf("luks: %w", err)
	}
	size, err := device.Seek(0, 2)
	if err == nil {
		block := make([]byte, markSize)
		copy(block, mark)
		_, err = device.WriteAt(block, size-markSize)
	}
	if err := errors.Join(err, device.Sync(), device.Close()); err != nil {
		return fmt.Errorf("luks: write to %s: %w", c.Device, err)
	}
	return nil
}
