package tpm2

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

const (
	// version is the version of the sealed form.
	version = 1
	// bank is the one in which values are compared. Every TPM 2.0 of a machine that is in use has it.
	bank = "sha256"
	// maxPCR is the highest register that every TPM has.
	maxPCR = 23
	// valueSize is the size of a register's value, in bytes.
	valueSize = sha256.Size
	// maxBlob bounds the sealed form: keys of one object and 24 values.
	maxBlob = 16 << 10
	// maxPrivate bounds the encrypted part of the object, which no command would hold if it were much larger.
	maxPrivate = 1 << 10
	// nameSize is that of the name of an object: its algorithm and a SHA-256.
	nameSize = 2 + sha256.Size
)

// blob is the sealed form. Nothing in it is secret: the secret is encrypted in Private by a key that never leaves the TPM. The values of the registers are
// beside it, so that a register that changed can be named.
type blob struct {
	Version int        `json:"version"`
	Bank    string     `json:"bank"`
	PCRs    []register `json:"pcrs"`
	// Parent is the name of the storage key, by which another TPM is told from a damaged file.
	Parent  []byte `json:"parent"`
	Public  []byte `json:"public"`
	Private []byte `json:"private"`
	// Check is the SHA-256 of the rest. It is against accidents only: whoever can write the file can only put something into it that no TPM opens.
	Check []byte `json:"check"`
}

// register is a PCR and the value that the secret is sealed to.
type register struct {
	PCR   uint32 `json:"pcr"`
	Value string `json:"value"`
}

// registers puts values in order.
func registers(pcrs []uint32, values map[uint32][]byte) []register {
	result := make([]register, 0, len(pcrs))
	for _, pcr := range pcrs {
		result = append(result, register{PCR: pcr, Value: hex.EncodeToString(values[pcr])})
	}
	return result
}

// wanted are the registers and the values that they must have.
func (b *blob) wanted() (pcrs []uint32, values map[uint32][]byte, err error) {
	values = map[uint32][]byte{}
	for i, r := range b.PCRs {
		value, err := hex.DecodeString(r.Value)
		if err != nil || len(value) != valueSize || r.PCR > maxPCR || i > 0 && r.PCR <= b.PCRs[i-1].PCR {
			return nil, nil, damaged("its registers are none of a TPM")
		}
		pcrs, values[r.PCR] = append(pcrs, r.PCR), value
	}
	if len(pcrs) == 0 {
		return nil, nil, damaged("it names no register")
	}
	return pcrs, values, nil
}

func damaged(why string) error {
	return fmt.Errorf("%w: %s: put the file back from a backup of this node, or %s", ErrDamaged, why, wayOut)
}

// sum is what Check must be.
func (b *blob) sum() ([]byte, error) {
	unchecked := *b
	unchecked.Check = nil
	content, err := json.Marshal(unchecked)
	if err != nil {
		return nil, fmt.Errorf("tpm2: encode the sealed form: %w", err)
	}
	sum := sha256.Sum256(append([]byte("reeve tpm2 sealed form\n"), content...))
	return sum[:], nil
}

// encode fills in Check.
func (b *blob) encode() (json.RawMessage, error) {
	var err error
	if b.Check, err = b.sum(); err != nil {
		return nil, err
	}
	content, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("tpm2: encode the sealed form: %w", err)
	}
	return content, nil
}

// decode reads a sealed form and checks all of it that can be checked without a TPM.
func decode(content json.RawMessage) (*blob, error) {
	if len(content) > maxBlob {
		return nil, damaged("it is too large")
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return nil, damaged("it is not a JSON document")
	}
	if head.Version != version && head.Version != 0 {
		return nil, fmt.Errorf("tpm2: the sealed form has version %d, this reeved reads version %d: use the reeved that wrote it, or a newer one", head.Version, version)
	}
	var b blob
	if err := json.Unmarshal(content, &b); err != nil {
		return nil, damaged("its fields are not those of a sealed form")
	}
	// JSON has many spellings of the same, and only the one that this package writes is taken, but for the white space that the file around it may have put in.
	// So nothing that was changed goes unnoticed.
	var given bytes.Buffer
	if err := json.Compact(&given, content); err != nil {
		return nil, damaged("it is not a JSON document")
	}
	if same, err := json.Marshal(&b); err != nil || !bytes.Equal(same, given.Bytes()) {
		return nil, damaged("its fields are not those of a sealed form")
	}
	if sum, err := b.sum(); err != nil || !bytes.Equal(sum, b.Check) {
		return nil, damaged("its content is not what was written")
	}
	if b.Version != version || b.Bank != bank || len(b.Parent) != nameSize || len(b.Private) == 0 || len(b.Private) > maxPrivate {
		return nil, damaged("it is incomplete")
	}
	return &b, b.checkPublic()
}

// checkPublic checks that the sealed object can be had by the policy of these registers and by nothing else.
func (b *blob) checkPublic() error {
	pcrs, values, err := b.wanted()
	if err != nil {
		return err
	}
	policy, err := policyOf(pcrs, values)
	if err != nil {
		return err
	}
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](b.Public)
	if err != nil {
		return damaged("its object is none of a TPM")
	}
	if public.Type != tpm2.TPMAlgKeyedHash {
		return damaged("its object is none that holds a secret")
	}
	expected := sealedTemplate(policy)
	// What the TPM itself adds is a digest over its secret seed and the secret, and all that may differ.
	expected.Unique = public.Unique
	if !bytes.Equal(tpm2.Marshal(expected), b.Public) {
		return damaged("its object is not the one that these registers protect")
	}
	return nil
}
