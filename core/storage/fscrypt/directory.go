package fscrypt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// directory is a volume in the encrypted data directory itself.
type directory struct{ Config }

func (d *directory) inner() encrypted { return encrypted{path: d.Data, step: d.Step} }

func (d *directory) Describe() volume.Description { return d.describe(d.Data) }

func (d *directory) State(context.Context) (volume.State, error) {
	if _, err := os.Stat(d.Data); errors.Is(err, fs.ErrNotExist) {
		return volume.Absent, nil
	}
	_, found, err := policyOf(d.Data)
	if err != nil {
		return volume.Absent, err
	}
	if !found {
		return volume.Absent, d.checkEmpty()
	}
	unlocked, err := d.inner().unlocked()
	if err != nil || !unlocked {
		return volume.Closed, err
	}
	return volume.Open, nil
}

// checkEmpty fails unless the directory has no entries at all. Encryption needs that: the exceptions of storage.Content do not apply.
func (d *directory) checkEmpty() error {
	names, err := readNames(d.Data)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return &volume.NotEmptyError{Location: d.Data, Found: names[0]}
	}
	return nil
}

// CheckFormat returns what Format would refuse of a volume of which there is nothing.
func (d *directory) CheckFormat() (problems []error) {
	for _, check := range []func() error{
		func() error { return needRoot("encrypt " + d.Data) },
		func() error {
			mount, err := volume.MountAt(d.Data)
			if err == nil && mount != nil {
				err = &UnsupportedError{Path: d.Data, Mounted: true}
			}
			return err
		},
		func() error {
			at, err := storage.Nearest(d.Data)
			if err == nil {
				_, _, err = policyOf(at)
			}
			return err
		},
	} {
		if err := check(); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

func (d *directory) Format(_ context.Context, key *keys.Secret) error {
	if err := needRoot("encrypt " + d.Data); err != nil {
		return err
	}
	if err := storage.MakeDirectory(d.Data, 0o700); err != nil {
		return err
	}
	if mount, err := volume.MountAt(d.Data); err != nil || mount != nil {
		return errors.Join(&UnsupportedError{Path: d.Data, Mounted: true}, err)
	}
	_, found, err := policyOf(d.Data)
	if err != nil {
		return err
	}
	if !found {
		if err := d.checkEmpty(); err != nil {
			return err
		}
		return d.inner().format(key)
	}
	// An earlier try may have completed without reporting it. The key tells: no other volume has it.
	return d.formatted(key)
}

func (d *directory) formatted(key *keys.Secret) error {
	inner := d.inner()
	before, err := inner.unlocked()
	if err != nil {
		return err
	}
	switch err := inner.unlock(key); {
	case errors.Is(err, volume.ErrWrongKey):
		return &volume.NotEmptyError{Location: d.Data, Found: "a directory that is encrypted with another key"}
	case err != nil || before:
		return err
	}
	id, _, err := policyOf(d.Data)
	if err != nil {
		return err
	}
	d.Step("remove-key")
	_, err = removeKey(inner.parent(), id)
	return err
}

func (d *directory) Open(_ context.Context, key *keys.Secret) error {
	if err := needRoot("open " + d.Data); err != nil {
		return err
	}
	inner := d.inner()
	if unlocked, err := inner.unlocked(); err != nil || unlocked {
		return err
	}
	return inner.unlock(key)
}

func (d *directory) Close(ctx context.Context) error {
	if err := needRoot("close " + d.Data); err != nil {
		return err
	}
	if _, err := os.Stat(d.Data); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	place, err := volume.DirectoryPlace(d.Data)
	if err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	return d.inner().lock(ctx, place)
}

func (d *directory) Rotate(context.Context, *keys.Secret, *keys.Secret) error {
	return volume.ErrFixedKey
}
