package luks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// The exit codes of cryptsetup that matter here (cryptsetup(8)).
const exitKey, exitBusy = 2, 5

var keySize = strconv.Itoa(KeySize)

// fastDerivation are the arguments for a fast key derivation: see the package comment.
func fastDerivation() []string {
	return []string{"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"}
}

// cryptsetup is the program with its arguments.
func cryptsetup(args ...string) volume.Program {
	return volume.Program{Name: "cryptsetup", Package: "cryptsetup-bin", Args: args}
}

// cryptsetup runs the program. It reads key from standard input and next from descriptor 3. volume.ErrWrongKey if no key slot takes the key.
func (c *container) cryptsetup(ctx context.Context, key, next *keys.Secret, args ...string) error {
	program := cryptsetup(args...)
	program.Key, program.Next = key, next
	_, err := program.Run(ctx)
	var exit *volume.ExitError
	if key != nil && errors.As(err, &exit) && exit.Code == exitKey {
		return volume.ErrWrongKey
	}
	if err != nil {
		return fmt.Errorf("luks: %s: %w", c.Device, err)
	}
	return nil
}

// test fails with volume.ErrWrongKey unless the key opens the container.
func (c *container) test(ctx context.Context, key *keys.Secret) error {
	return c.cryptsetup(ctx, key, nil, "open", "--test-passphrase", "--type", "luks2", "--key-file", "-", "--keyfile-size", keySize, c.Device)
}

func (c *container) opens(ctx context.Context, key *keys.Secret) (bool, error) {
	err := c.test(ctx, key)
	if errors.Is(err, volume.ErrWrongKey) {
		return false, nil
	}
	return err == nil, err
}

// mapping is an open container.
type mapping struct {
	// device is the number of the decrypted device.
	device uint64
}

// mapping returns the container's mapping; nil if it is closed. *volume.DamagedError if its name is taken, or somebody else mapped it.
func (c *container) mapping() (*mapping, error) {
	names, err := filepath.Glob("/sys/block/dm-*/dm/name")
	if err != nil {
		return nil, fmt.Errorf("luks: %w", err)
	}
	prefix := "CRYPT-LUKS2-" + strings.ReplaceAll(c.uuid, "-", "") + "-"
	for _, path := range names {
		name, errName := os.ReadFile(path)
		id, errID := os.ReadFile(filepath.Join(filepath.Dir(path), "uuid"))
		if errName != nil || errID != nil {
			// It was removed meanwhile.
			continue
		}
		named, mine := strings.TrimSpace(string(name)), strings.HasPrefix(strings.TrimSpace(string(id)), prefix)
		switch {
		case mine && named == c.name:
			device, err := volume.DeviceNumber(filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(path)))))
			if err != nil {
				return nil, err
			}
			return &mapping{device: device}, nil
		case mine:
			return nil, &volume.DamagedError{Location: c.Device, Problem: fmt.Sprintf("somebody else opened it as /dev/mapper/%s: close that (`cryptsetup close %s`)", named, named)}
		case named == c.name:
			return nil, &volume.DamagedError{Location: c.Device, Problem: fmt.Sprintf("another device has the name %s: remove that (`dmsetup remove %s`)", c.path(), c.name)}
		}
	}
	return nil, nil
}

// NoMapperError says that this kernel cannot open a container.
type NoMapperError struct {
	// Module is the missing kernel module.
	Module string
}

func (e *NoMapperError) Error() string {
	return fmt.Sprintf("luks: this kernel has no %s, which LUKS needs: load it (`modprobe %s`), use a kernel that has it, or use the kind fscrypt", e.Module, e.Module)
}

// needMapper fails with *NoMapperError unless the kernel has the device mapper. cryptsetup itself makes the kernel load dm-crypt.
func needMapper(ctx context.Context) error {
	if hasMapper() {
		return nil
	}
	// hasMapper tells whether modprobe worked.
	_, err := volume.Program{Name: "modprobe", Package: "kmod", Args: []string{"dm_mod"}}.Run(ctx)
	if ctx.Err() != nil {
		return err
	}
	if hasMapper() {
		return nil
	}
	return &NoMapperError{Module: "dm_mod"}
}

func hasMapper() bool {
	content, err := os.ReadFile("/proc/misc")
	return err == nil && bytes.Contains(content, []byte("device-mapper"))
}
