package tpm2

import (
	"bytes"
	"fmt"
	"sync"
)

// known is the name of a TPM's storage key, which is a digest over its public part: whoever has not the TPM's seed has no key of the same name. Nothing says of a
// TPM that is met for the first time whose it is. From then on it has to be that one: an unseal compares the name with the one that was recorded beside the secret,
// and a seal with the one that was met before, so that nothing is sealed for a key that somebody put between.
type known struct {
	mu   sync.Mutex
	name []byte
	// proven says that the key gave a secret back, or that a use of it was told of in the log. Of one that was only named by a file nobody knows whose that is.
	proven bool
}

// named takes note of a storage key that is the one which a file names, and has given nothing back.
func (k *known) named(name []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name == nil {
		k.name = bytes.Clone(name)
	}
}

// used takes note of a storage key that has opened or sealed a secret. It was not proven before if it returns true.
func (k *known) used(name []byte) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first = !k.proven
	if first {
		k.name, k.proven = bytes.Clone(name), true
	}
	return first
}

// is says whether a storage key may be sealed by.
func (k *known) is(name []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name == nil || bytes.Equal(k.name, name) {
		return nil
	}
	return fmt.Errorf("%w: it was %x and is %x: the TPM was cleared, or something between the processor and the TPM puts a key of its own in the place of the TPM's. Nothing was sealed. If you cleared it, restart reeved, open the node with the recovery key (`reeve node unlock`), and seal it anew (`reeve node reseal`)",
		ErrStorageKey, k.name, name)
}
