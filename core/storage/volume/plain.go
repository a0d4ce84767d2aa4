package volume

import (
	"context"
	"fmt"
	"os"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

type plain struct{ data string }

// NewPlain returns an unencrypted volume in a directory.
func NewPlain(data string) Kind { return plain{data} }

func (p plain) Describe() Description { return Description{Kind: storage.Plain, Location: p.data} }

// State is never Closed: whoever has the disk can read it.
func (p plain) State(context.Context) (State, error) {
	found, err := storage.Content(p.data)
	if err != nil {
		return Absent, err
	}
	if found == "" {
		return Absent, nil
	}
	return Open, nil
}

// CheckFormat returns what Format would refuse.
func (p plain) CheckFormat() []error {
	if err := CheckEmpty(p.data); err != nil {
		return []error{err}
	}
	return nil
}

func (p plain) Format(context.Context, *keys.Secret) error {
	if err := CheckEmpty(p.data); err != nil {
		return err
	}
	return storage.MakeDirectory(p.data, 0o700)
}

func (p plain) Open(context.Context, *keys.Secret) error {
	if _, err := os.Stat(p.data); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	return nil
}

func (p plain) Close(context.Context) error { return nil }

func (p plain) Rotate(context.Context, *keys.Secret, *keys.Secret) error { return ErrFixedKey }

// CheckEmpty fails with *NotEmptyError unless storage.Content finds nothing in a directory.
func CheckEmpty(path string) error {
	found, err := storage.Content(path)
	if err != nil || found == "" {
		return err
	}
	return &NotEmptyError{Location: path, Found: found}
}
