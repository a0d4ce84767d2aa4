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
}

// meet takes note of the name of a storage key that was used. It is the first time if it returns true; a name that is there already stays.
func (k *known) meet(name []byte) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name != nil {
		return false
	}
	k.name = bytes.Clone(name)
	return true
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
