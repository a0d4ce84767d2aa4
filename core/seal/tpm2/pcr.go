package tpm2

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// readAtOnce is how many registers a TPM reads per command.
const readAtOnce = 8

// selection selects registers of the bank.
func selection(pcrs []uint32) tpm2.TPMLPCRSelection {
	chosen := make([]uint, len(pcrs))
	for i, pcr := range pcrs {
		chosen[i] = uint(pcr)
	}
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(chosen...)}}}
}

// policyPCR is the command that requires these values of registers.
func policyPCR(pcrs []uint32, values map[uint32][]byte) tpm2.PolicyPCR {
	digest := sha256.New()
	for _, pcr := range pcrs {
		digest.Write(values[pcr])
	}
	return tpm2.PolicyPCR{PcrDigest: tpm2.TPM2BDigest{Buffer: digest.Sum(nil)}, Pcrs: selection(pcrs)}
}

// policyOf is the digest of the policy that requires these values of registers.
func policyOf(pcrs []uint32, values map[uint32][]byte) ([]byte, error) {
	policy, err := tpm2.NewPolicyCalculator(tpm2.TPMAlgSHA256)
	if err != nil {
		return nil, &ownError{err}
	}
	if err := policyPCR(pcrs, values).Update(policy); err != nil {
		return nil, &ownError{err}
	}
	return policy.Hash().Digest, nil
}

// read returns a consistent snapshot of registers.
func (c *connection) read(pcrs []uint32) (map[uint32][]byte, error) {
	for range attempts {
		values, err := c.readOnce(pcrs)
		if err != nil || values != nil {
			return values, in("TPM2_PCR_Read", err)
		}
	}
	return nil, in("TPM2_PCR_Read", &lineError{"the registers keep changing", nil})
}

// readOnce returns nil if a register changed between two commands.
func (c *connection) readOnce(pcrs []uint32) (map[uint32][]byte, error) {
	values := map[uint32][]byte{}
	var moment uint32
	for first := 0; first < len(pcrs); first += readAtOnce {
		some := pcrs[first:min(first+readAtOnce, len(pcrs))]
		answer, err := tpm2.PCRRead{PCRSelectionIn: selection(some)}.Execute(c)
		if err != nil {
			return nil, err
		}
		if first > 0 && answer.PCRUpdateCounter != moment {
			return nil, nil
		}
		moment = answer.PCRUpdateCounter
		given := answer.PCRValues.Digests
		if len(given) == 0 {
			return nil, &strangeError{"it has no SHA-256 bank of registers: switch it on in the machine's firmware setup"}
		}
		if !bytes.Equal(tpm2.Marshal(answer.PCRSelectionOut), tpm2.Marshal(selection(some))) || len(given) != len(some) {
			return nil, &strangeError{fmt.Sprintf("it lacks some of the PCRs %v", some)}
		}
		for i, pcr := range some {
			if len(given[i].Buffer) != valueSize {
				return nil, &strangeError{fmt.Sprintf("an invalid value of PCR %d", pcr)}
			}
			values[pcr] = given[i].Buffer
		}
	}
	return values, nil
}

// wanted returns the registers with the values to seal to: the predicted or else the current ones.
func (c *connection) wanted(pcrs []uint32, predicted map[uint32][]byte) ([]register, error) {
	var present []uint32
	for _, pcr := range pcrs {
		if predicted[pcr] == nil {
			present = append(present, pcr)
		}
	}
	values := map[uint32][]byte{}
	if len(present) > 0 {
		var err error
		if values, err = c.read(present); err != nil {
			return nil, err
		}
	}
	for pcr, value := range predicted {
		values[pcr] = value
	}
	return registers(pcrs, values), nil
}

// changed reports whether the TPM refused because of its registers.
func changed(err error) bool {
	var refused *policyError
	return errors.As(err, &refused)
}

// policyError is a refusal by the policy.
type policyError struct{ err error }

func (e *policyError) Error() string { return e.err.Error() }
func (e *policyError) Unwrap() error { return e.err }

// compare returns a *ChangedError if a register does not have its value.
func (c *connection) compare(pcrs []uint32, values map[uint32][]byte) error {
	present, err := c.read(pcrs)
	if err != nil {
		return err
	}
	var changes []Change
	for _, pcr := range pcrs {
		if !bytes.Equal(present[pcr], values[pcr]) {
			changes = append(changes, Change{PCR: pcr, Sealed: values[pcr], Now: present[pcr]})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return &ChangedError{Changes: changes}
}
