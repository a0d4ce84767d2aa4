package fscrypt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// encrypted is the encrypted directory of either variant.
type encrypted struct {
	path string
	step func(string)
}

// parent is the parent directory, on the same file system. Key requests go through it, since an open encrypted directory would keep its own key in
// use.
func (e encrypted) parent() string { return filepath.Dir(e.path) }

// probe is a name that proveLocked tries to make without the key.
const probe = ".reeve-probe"

// format encrypts the empty directory with the key, and removes the key from the kernel again.
func (e encrypted) format(key *keys.Secret) error {
	e.step("add-key")
	id, err := addKey(e.parent(), key)
	if err != nil {
		return err
	}
	e.step("set-policy")
	if err := setPolicy(e.path, id); err != nil {
		_, undo := removeKey(e.parent(), id)
		return errors.Join(err, undo)
	}
	if err := storage.SyncDirectory(e.path); err != nil {
		return err
	}
	e.step("remove-key")
	if _, err := removeKey(e.parent(), id); err != nil {
		return err
	}
	return nil
}

// unlock adds the key to the kernel. It removes a wrong key again and returns volume.ErrWrongKey.
func (e encrypted) unlock(key *keys.Secret) error {
	want, found, err := policyOf(e.path)
	if err != nil {
		return err
	}
	if !found {
		return &volume.DamagedError{Location: e.path, Problem: "it is not encrypted: point the node to the right directory, or restore it"}
	}
	status, err := keyStatus(e.parent(), want)
	if err != nil {
		return err
	}
	e.step("add-key")
	id, err := addKey(e.parent(), key)
	if err != nil {
		return err
	}
	if id == want {
		return nil
	}
	if _, err := removeKey(e.parent(), id); err != nil {
		return errors.Join(volume.ErrWrongKey, err)
	}
	if status == unix.FSCRYPT_KEY_STATUS_PRESENT {
		return fmt.Errorf("%w, which is open", volume.ErrWrongKey)
	}
	return volume.ErrWrongKey
}

// unlocked reports whether the kernel has the key.
func (e encrypted) unlocked() (bool, error) {
	id, found, err := policyOf(e.path)
	if err != nil || !found {
		return false, err
	}
	status, err := keyStatus(e.parent(), id)
	return status == unix.FSCRYPT_KEY_STATUS_PRESENT, err
}

// lock removes the key from the kernel and verifies that nothing can be read. *volume.BusyError if files are open: then nothing has changed, unless
// the file was opened just now or its user cannot be found. In that case open files stay usable and no others.
func (e encrypted) lock(ctx context.Context, place volume.Place) error {
	id, found, err := policyOf(e.path)
	if err != nil || !found {
		return err
	}
	status, err := keyStatus(e.parent(), id)
	if err != nil {
		return err
	}
	if status == unix.FSCRYPT_KEY_STATUS_ABSENT {
		return e.proveLocked(id, nil)
	}
	users, err := volume.Lasting(ctx, place)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return &volume.BusyError{Location: e.path, Users: users}
	}
	names, err := readNames(e.path)
	if err != nil {
		return err
	}
	e.step("remove-key")
	for until := time.Now().Add(volume.Patience); ; {
		busy, err := removeKey(e.parent(), id)
		if err != nil {
			return err
		}
		if !busy {
			return e.proveLocked(id, names)
		}
		if users, err = volume.Lasting(ctx, place); err != nil {
			return err
		}
		if len(users) > 0 || !time.Now().Before(until) {
			return &volume.BusyError{Location: e.path, Users: users}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readNames returns up to 1000 names of the directory. A few prove as much as all.
func readNames(path string) ([]string, error) {
	directory, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("fscrypt: %w", err)
	}
	// The error at the end of an empty directory is io.EOF.
	names, _ := directory.Readdirnames(1000)
	if err := directory.Close(); err != nil {
		return nil, fmt.Errorf("fscrypt: %w", err)
	}
	return names, nil
}

// proveLocked fails unless the kernel has no key, none of the names can be found, and no name can be made.
func (e encrypted) proveLocked(id keyID, names []string) error {
	status, err := keyStatus(e.parent(), id)
	if err != nil {
		return err
	}
	if status != unix.FSCRYPT_KEY_STATUS_ABSENT {
		return fmt.Errorf("fscrypt: the kernel has the key of %s again after it was removed (status %d): stop whoever adds it, and close the volume again", e.path, status)
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(e.path, name)); err == nil {
			return fmt.Errorf("fscrypt: %s is still readable after its key was removed: restart the machine to close it", filepath.Join(e.path, name))
		}
	}
	made := filepath.Join(e.path, probe)
	if err := os.Mkdir(made, 0o700); !errors.Is(err, unix.ENOKEY) {
		if err == nil {
			err = os.Remove(made)
		}
		return fmt.Errorf("fscrypt: %s is still writable after its key was removed (%w): restart the machine to close it", e.path, err)
	}
	return nil
}
