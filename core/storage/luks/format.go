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
		// An earlier try may have completed without reporting it. The key tells.
		if err := c.test(ctx, key); errors.Is(err, volume.ErrWrongKey) {
			return &volume.NotEmptyError{Location: c.Device, Found: "a volume that this node made earlier, with another key"}
		} else if err != nil {
			return err
		}
		return nil
	}
	if !content.resumable() {
		return &volume.NotEmptyError{Location: c.Device, Found: content.found}
	}
	if err := volume.CheckEmpty(c.Data); err != nil {
		return err
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

// CheckFormat returns what Format would refuse of a device that is not this node's yet.
func (c *container) CheckFormat() (problems []error) {
	for _, err := range []error{
		needRoot("format " + c.Device), cryptsetup().Check(), volume.Program{Name: "mkfs.ext4", Package: "e2fsprogs"}.Check(), volume.CheckEmpty(c.Data),
	} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// make makes the container and its file system. Wherever it is interrupted, inspect sees that it is incomplete.
func (c *container) make(ctx context.Context, key *keys.Secret) error {
	c.Step("mark")
	if err := c.writeMark(c.mark()); err != nil {
		return err
	}
	c.Step("luks-format")
	args := append([]string{
		"luksFormat", "--batch-mode", "--type", "luks2", "--uuid", c.uuid, "--label", labelMaking, "--cipher", "aes-xts-plain64", "--key-size", "512",
		"--key-file", "-", "--keyfile-size", keySize,
	}, fastDerivation()...)
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

// writeMark writes the mark, or zeros for nil, at the end of the device. *volume.NotEmptyError if the device is in use.
func (c *container) writeMark(mark []byte) error {
	// O_EXCL fails on a block device that is mounted or part of another device.
	device, err := os.OpenFile(c.Device, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return &volume.NotEmptyError{Location: c.Device, Found: "a use (it is mounted, or part of another device: run `lsblk " + c.Device + "`)"}
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
