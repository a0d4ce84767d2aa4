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
	// bank is the bank of registers that is used. Every TPM 2.0 in use has it.
	bank = "sha256"
	// maxPCR is the highest register that every TPM has.
	maxPCR = 23
	// valueSize is the size of a register's value in bytes.
	valueSize = sha256.Size
	// maxBlob is the largest sealed form: the keys of one object and 24 values.
	maxBlob = 16 << 10
	// maxPrivate is the largest encrypted part of the object. A much larger one would fit in no command.
	maxPrivate = 1 << 10
	// nameSize is the size of an object's name: its algorithm and a SHA-256.
	nameSize = 2 + sha256.Size
)

// blob is the sealed form. It holds no secret: Private is encrypted with a key that never leaves the TPM. The registers' values are in it so that an
// error can name the register that changed.
type blob struct {
	Version int        `json:"version"`
	Bank    string     `json:"bank"`
	PCRs    []register `json:"pcrs"`
	// Parent is the name of the storage key. It tells another TPM from a damaged file.
	Parent  []byte `json:"parent"`
	Public  []byte `json:"public"`
	Private []byte `json:"private"`
	// Check is the SHA-256 of the rest. It detects accidents only; whoever can write the file can at most write something that no TPM opens.
	Check []byte `json:"check"`
}

// register is a PCR and the value that the secret is sealed to.
type register struct {
	PCR   uint32 `json:"pcr"`
	Value string `json:"value"`
}

// registers pairs registers with their values, in order.
func registers(pcrs []uint32, values map[uint32][]byte) []register {
	result := make([]register, 0, len(pcrs))
	for _, pcr := range pcrs {
		result = append(result, register{PCR: pcr, Value: hex.EncodeToString(values[pcr])})
	}
	return result
}

// wanted returns the registers and the values that they must have.
func (b *blob) wanted() (pcrs []uint32, values map[uint32][]byte, err error) {
	values = map[uint32][]byte{}
	for i, r := range b.PCRs {
		value, err := hex.DecodeString(r.Value)
		if err != nil || len(value) != valueSize || r.PCR > maxPCR || i > 0 && r.PCR <= b.PCRs[i-1].PCR {
			return nil, nil, damaged("its list of registers is invalid")
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

// sum computes Check.
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

// encode sets Check.
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

// decode parses a sealed form and checks everything that needs no TPM.
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
	// JSON has many spellings of the same value. Only this package's own is accepted, apart from white space that the surrounding file may have
	// added, so every change is noticed.
	var given bytes.Buffer
	if err := json.Compact(&given, content); err != nil {
		return nil, damaged("it is not a JSON document")
	}
	if same, err := json.Marshal(&b); err != nil || !bytes.Equal(same, given.Bytes()) {
		return nil, damaged("its fields are not those of a sealed form")
	}
	if sum, err := b.sum(); err != nil || !bytes.Equal(sum, b.Check) {
		return nil, damaged("its content does not match its checksum")
	}
	if b.Version != version || b.Bank != bank || len(b.Parent) != nameSize || len(b.Private) == 0 || len(b.Private) > maxPrivate {
		return nil, damaged("it is incomplete")
	}
	return &b, b.checkPublic()
}

// checkPublic checks that only the policy of these registers gives access to the sealed object.
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
		return damaged("its object cannot be parsed")
	}
	if public.Type != tpm2.TPMAlgKeyedHash {
		return damaged("its object holds no secret")
	}
	expected := sealedTemplate(policy)
	// Unique may differ: the TPM computes it from its seed and the secret.
	expected.Unique = public.Unique
	if !bytes.Equal(tpm2.Marshal(expected), b.Public) {
		return damaged("its object has another policy than its registers")
	}
	return nil
}
