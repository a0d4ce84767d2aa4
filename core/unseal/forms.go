package unseal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/reeveproject/reeve/core/keys"
)

// rawForms are encoded forms.
type rawForms = json.RawMessage

// maxForms is how many sealed forms of a secret there are at most: one for the present state of the machine, one for a planned one.
const maxForms = 2

// errForms says that sealed forms are not what was written.
var errForms = errors.New("its sealed forms are damaged")

// forms is a seal.Sealer that keeps a secret in one sealed form, or in two while a change of the machine is planned: one for its present state, one for the
// planned. The first that opens counts.
type forms struct {
	tpm tpm

	mu sync.Mutex
	// used is the form that opened last, if it was the planned one; nil otherwise.
	used json.RawMessage
}

// Name implements seal.Sealer.
func (f *forms) Name() string { return f.tpm.Name() }

// Seal implements seal.Sealer.
func (f *forms) Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error) {
	return f.sealFor(ctx, secret, nil)
}

// sealFor seals for the present state, and for a planned one if there are values.
func (f *forms) sealFor(ctx context.Context, secret *keys.Secret, planned map[uint32][]byte) (json.RawMessage, error) {
	present, err := f.tpm.Seal(ctx, secret)
	if err != nil {
		return nil, err
	}
	list := []json.RawMessage{present}
	if len(planned) > 0 {
		next, err := f.tpm.SealFor(ctx, secret, planned)
		if err != nil {
			return nil, err
		}
		list = append(list, next)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = nil
	return json.Marshal(list)
}

// Unseal implements seal.Sealer.
func (f *forms) Unseal(ctx context.Context, encoded json.RawMessage) (*keys.Secret, error) {
	list, err := parseForms(encoded)
	if err != nil {
		return nil, err
	}
	var problem error
	for i, form := range list {
		secret, err := f.tpm.Unseal(ctx, form)
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.used = nil
			if i > 0 {
				f.used = form
			}
			return secret, nil
		}
		if i == 0 {
			problem = err
		} else {
			problem = fmt.Errorf("%w; and for the planned state of the machine: %w", problem, err)
		}
	}
	return nil, problem
}

// planned returns the sealed forms without the one for the state that the machine has left; nil if it has not left it. The form for a planned state stays until
// the machine is in it: a change may take more than one restart.
func (f *forms) planned() json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used == nil {
		return nil
	}
	// A list of what was read as JSON.
	only, _ := json.Marshal([]json.RawMessage{f.used})
	return only
}

// done forgets the form that opened.
func (f *forms) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = nil
}

func parseForms(encoded json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(encoded, &list); err != nil || len(list) == 0 || len(list) > maxForms {
		return nil, errForms
	}
	return list, nil
}
