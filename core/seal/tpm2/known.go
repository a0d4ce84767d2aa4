package tpm2

import (
	"bytes"
	"fmt"
	"sync"
)

// known is the name of a TPM's storage key, a digest over its public part: without the TPM's seed nobody has a key of that name. Nothing vouches for
// a TPM at first use. From then on it must be the same: unseal compares the name with the one recorded beside the secret, and seal with the one used
// before, so that nothing is sealed for an attacker's key on the bus.
type known struct {
	mu   sync.Mutex
	name []byte
	// proven says that the key returned a secret, or that the log reported its first use. A key that only a file names is not proven.
	proven bool
}

// named records the key that a file names and that has not returned a secret yet.
func (k *known) named(name []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name == nil {
		k.name = bytes.Clone(name)
	}
}

// used records a key that opened or sealed a secret. It returns true the first time.
func (k *known) used(name []byte) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first = !k.proven
	if first {
		k.name, k.proven = bytes.Clone(name), true
	}
	return first
}

// is fails unless a storage key may be used to seal.
func (k *known) is(name []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name == nil || bytes.Equal(k.name, name) {
		return nil
	}
	return fmt.Errorf("%w: it was %x and is %x: the TPM was cleared, or something between the processor and the TPM replaces its key. Nothing was sealed. If you cleared it, restart reeved, open the node with the recovery key (`reeve node unlock`), and seal it anew (`reeve node reseal`)",
		ErrStorageKey, k.name, name)
}
