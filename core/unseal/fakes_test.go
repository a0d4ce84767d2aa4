package unseal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// fakeTPM seals to one register, 7.
type fakeTPM struct {
	mu sync.Mutex
	// id is the machine's, register the value of its register.
	id       string
	register byte
	gone     bool
	unseals  int
}

type fakeForm struct {
	ID       string `json:"id"`
	Register byte   `json:"register"`
	Secret   []byte `json:"secret"`
}

func (*fakeTPM) Name() string   { return "tpm2" }
func (*fakeTPM) PCRs() []uint32 { return []uint32{7} }

func (f *fakeTPM) Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error) {
	return f.SealFor(ctx, secret, nil)
}

func (f *fakeTPM) SealFor(_ context.Context, secret *keys.Secret, values map[uint32][]byte) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return nil, fmt.Errorf("%w: away", tpm2.ErrUnavailable)
	}
	form := fakeForm{ID: f.id, Register: f.register}
	if value, ok := values[7]; ok {
		form.Register = value[0]
	}
	err := secret.Use(func(content []byte) error { form.Secret = bytes.Clone(content); return nil })
	if err != nil {
		return nil, err
	}
	return json.Marshal(form)
}

func (f *fakeTPM) Unseal(_ context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unseals++
	var form fakeForm
	switch err := json.Unmarshal(sealed, &form); {
	case f.gone:
		return nil, fmt.Errorf("%w: away", tpm2.ErrUnavailable)
	case err != nil:
		return nil, errors.New("the sealed form is damaged")
	case form.ID != f.id:
		return nil, tpm2.ErrOtherTPM
	case form.Register != f.register:
		return nil, fmt.Errorf("%w: register 7 has changed", tpm2.ErrChanged)
	}
	return keys.SecretOf(form.Secret)
}

func (f *fakeTPM) set(change func(*fakeTPM)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// fakeDisk is an encrypted volume that outlives rooms. Its keys are those of the last Rotate, or of Format.
type fakeDisk struct {
	mu      sync.Mutex
	kind    storage.VolumeKind
	key     []byte
	open    bool
	formats int
	// opens counts how often it was closed and opened.
	opens  int
	busy   error
	broken error
	// late is why it cannot be opened yet.
	late error
}

func (d *fakeDisk) Describe() volume.Description {
	return volume.Description{Kind: d.kind, Encrypted: true, Location: "/dev/fake", KeySize: 64}
}

func (d *fakeDisk) State(context.Context) (volume.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.broken != nil:
		return volume.Absent, d.broken
	case d.key == nil:
		return volume.Absent, nil
	case d.open:
		return volume.Open, nil
	}
	return volume.Closed, nil
}

func (d *fakeDisk) Format(_ context.Context, key *keys.Secret) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.key != nil {
		return &volume.NotEmptyError{Location: "/dev/fake", Found: "a volume"}
	}
	d.formats++
	return key.Use(func(content []byte) error { d.key = bytes.Clone(content); return nil })
}

func (d *fakeDisk) Open(_ context.Context, key *keys.Secret) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		return nil
	}
	if d.late != nil {
		return d.late
	}
	if !d.isKey(key) {
		return volume.ErrWrongKey
	}
	d.open = true
	d.opens++
	return nil
}

func (d *fakeDisk) isKey(key *keys.Secret) bool {
	same := false
	_ = key.Use(func(content []byte) error { same = d.key != nil && bytes.Equal(content, d.key); return nil })
	return same
}

func (d *fakeDisk) Close(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy != nil {
		return d.busy
	}
	d.open = false
	return nil
}

func (d *fakeDisk) Rotate(_ context.Context, old, next *keys.Secret) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.kind != storage.LUKS:
		return volume.ErrFixedKey
	case d.isKey(next):
		return nil
	case !d.isKey(old):
		return volume.ErrWrongKey
	}
	return next.Use(func(content []byte) error { d.key = bytes.Clone(content); return nil })
}

func (d *fakeDisk) set(change func(*fakeDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *fakeDisk) isOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}
