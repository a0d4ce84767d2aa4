package tpm2_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

// form is what the sealed form looks like from outside.
type form struct {
	Version int             `json:"version"`
	Bank    string          `json:"bank"`
	PCRs    json.RawMessage `json:"pcrs"`
	Parent  []byte          `json:"parent"`
	Public  []byte          `json:"public"`
	Private []byte          `json:"private"`
	Check   []byte          `json:"check"`
}

func parts(t testing.TB, content json.RawMessage) (public, private []byte) {
	t.Helper()
	var f form
	if err := json.Unmarshal(content, &f); err != nil {
		t.Fatal(err)
	}
	return f.Public, f.Private
}

// forged is a sealed form that somebody changed who knows how its check is made.
func forged(t testing.TB, content json.RawMessage, change func(*form)) json.RawMessage {
	t.Helper()
	var f form
	if err := json.Unmarshal(content, &f); err != nil {
		t.Fatal(err)
	}
	change(&f)
	f.Check = nil
	unchecked, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append([]byte("reeve tpm2 sealed form\n"), unchecked...))
	f.Check = sum[:]
	result, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func selection(pcr uint) gotpm.TPMLPCRSelection {
	return gotpm.TPMLPCRSelection{PCRSelections: []gotpm.TPMSPCRSelection{{Hash: gotpm.TPMAlgSHA256, PCRSelect: gotpm.PCClientCompatible.PCRs(pcr)}}}
}

// refused checks that a sealed form is refused for what it is, and not as the work of another TPM or of another state.
func refused(t testing.TB, s *tpm2.Sealer, content json.RawMessage) error {
	t.Helper()
	got, err := s.Unseal(t.Context(), content)
	if got != nil || err == nil || errors.Is(err, tpm2.ErrUnavailable) || errors.Is(err, tpm2.ErrChanged) || errors.Is(err, tpm2.ErrOtherTPM) {
		t.Errorf("%.200s: unsealed %v, %v", content, got, err)
	}
	return err
}

func TestDamaged(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket(), PCRs: []uint32{7, 11}})
	good, secret := sealed(t, s)
	// The file around it may indent it.
	var indented bytes.Buffer
	if err := json.Indent(&indented, good, "\t", "  "); err != nil {
		t.Fatal(err)
	}
	unseals(t, s, indented.Bytes(), secret)

	// What can be seen to be damaged is refused without a TPM.
	nowhere := tpm2.New(tpm2.Config{Device: t.TempDir() + "/none"})
	if _, err := nowhere.Unseal(t.Context(), good); !errors.Is(err, tpm2.ErrUnavailable) {
		t.Fatalf("a good form without a TPM: %v", err)
	}
	t.Run("truncated", func(t *testing.T) {
		for n := range good {
			_ = refused(t, nowhere, good[:n])
		}
	})
	t.Run("a bit flipped", func(t *testing.T) {
		for bit := 0; bit < 8*len(good); bit += someBits {
			flipped := bytes.Clone(good)
			flipped[bit/8] ^= 1 << (bit % 8)
			_ = refused(t, nowhere, flipped)
		}
		for bit := 0; bit < 8*indented.Len(); bit += 8 * someBits {
			flipped := bytes.Clone(indented.Bytes())
			flipped[bit/8] ^= 1
			_ = refused(t, nowhere, flipped)
		}
	})
	t.Run("other documents", func(t *testing.T) {
		for _, content := range []string{"", "null", "{}", "[]", `"x"`, "0", string(good) + string(good), string(good) + "x", strings.Replace(string(good), "{", `{"more":1,`, 1),
			strings.Replace(string(good), "{", `{"version":1,`, 1), strings.ToUpper(string(good)), strings.Repeat(" ", 1<<20)} {
			if err := refused(t, nowhere, json.RawMessage(content)); !errors.Is(err, tpm2.ErrDamaged) {
				t.Errorf("%.40q: %v", content, err)
			}
		}
	})
	t.Run("newer", func(t *testing.T) {
		newer := forged(t, good, func(f *form) { f.Version = 2 })
		if err := refused(t, nowhere, newer); errors.Is(err, tpm2.ErrDamaged) || !strings.Contains(err.Error(), "version 2") {
			t.Error(err)
		}
	})
	t.Run("forged", func(t *testing.T) {
		other := strings.Repeat("11", 32)
		for name, change := range inorder.Of(map[string]func(*form){
			"nothing":          func(*form) {},
			"another bank":     func(f *form) { f.Bank = "sha1" },
			"no register":      func(f *form) { f.PCRs = json.RawMessage("[]") },
			"another register": func(f *form) { f.PCRs = json.RawMessage(`[{"pcr":8,"value":"` + other + `"}]`) },
			"twice": func(f *form) {
				f.PCRs = json.RawMessage(`[{"pcr":7,"value":"` + other + `"},{"pcr":7,"value":"` + other + `"}]`)
			},
			"PCR 24":         func(f *form) { f.PCRs = json.RawMessage(`[{"pcr":24,"value":"` + other + `"}]`) },
			"a short value":  func(f *form) { f.PCRs = json.RawMessage(`[{"pcr":7,"value":"11"}]`) },
			"no parent":      func(f *form) { f.Parent = nil },
			"no object":      func(f *form) { f.Public = nil },
			"a cut object":   func(f *form) { f.Public = f.Public[:20] },
			"another object": func(f *form) { f.Public = gotpm.Marshal(gotpm.ECCSRKTemplate) },
			// UserWithAuth: a password would do.
			"a password": func(f *form) { f.Public[7] |= 0x40 },
			"no private": func(f *form) { f.Private = nil },
		}) {
			t.Run(name, func(t *testing.T) {
				content := forged(t, good, change)
				if name == "nothing" { // the check is made here as it is there
					unseals(t, s, content, secret)
					return
				}
				if err := refused(t, nowhere, content); !errors.Is(err, tpm2.ErrDamaged) {
					t.Error(err)
				}
			})
		}
	})
	// What only the TPM can see is refused by it.
	t.Run("private part", func(t *testing.T) {
		_, private := parts(t, good)
		for i := 0; i < len(private); i += someBytes {
			content := forged(t, good, func(f *form) { f.Private[i] ^= 0x10 })
			if err := refused(t, s, content); !errors.Is(err, tpm2.ErrDamaged) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
		for _, n := range []int{1, 2, len(private) / 2, len(private) - 1} {
			content := forged(t, good, func(f *form) { f.Private = f.Private[:n] })
			if err := refused(t, s, content); !errors.Is(err, tpm2.ErrDamaged) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		for _, n := range []int{1, 1000, 4000} {
			content := forged(t, good, func(f *form) { f.Private = append(f.Private, make([]byte, n)...) })
			if err := refused(t, s, content); !errors.Is(err, tpm2.ErrDamaged) {
				t.Errorf("%d bytes more: %v", n, err)
			}
		}
		_, object := parts(t, good)
		last := forged(t, good, func(f *form) { f.Public[len(f.Public)-1] ^= 1; f.Private = object })
		if err := refused(t, s, last); !errors.Is(err, tpm2.ErrDamaged) {
			t.Errorf("the digest in the object: %v", err)
		}
	})
	if loaded := tpm.Loaded(); loaded != 0 {
		t.Errorf("%d objects and sessions are left in the TPM", loaded)
	}
	unseals(t, s, good, secret)
}

// Whatever is in the sealed form, it is refused for what it is, or it goes to the TPM.
func FuzzUnseal(f *testing.F) {
	f.Add([]byte(`{"version":1,"bank":"sha256","pcrs":[{"pcr":7,"value":"00"}],"parent":"AAs=","public":"AAg=","private":"AA==","check":"AA=="}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte("{\n}"))
	nowhere := tpm2.New(tpm2.Config{Device: f.TempDir() + "/none"})
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := nowhere.Unseal(t.Context(), content)
		if got != nil || err == nil {
			t.Fatalf("unsealed %v without a TPM", got)
		}
		// Only what has its right check goes on, and no fuzzer finds that.
		if errors.Is(err, tpm2.ErrChanged) || errors.Is(err, tpm2.ErrOtherTPM) || errors.Is(err, tpm2.ErrUnavailable) {
			t.Fatal(err)
		}
	})
}

// Whatever object a sealed form names with a check that is right, only one that its registers protect goes to the TPM.
func FuzzObject(f *testing.F) {
	good := json.RawMessage(`{"version":1,"bank":"sha256","pcrs":[{"pcr":7,"value":"` + strings.Repeat("00", 32) + `"}],"parent":"` + strings.Repeat("A", 44) + `AA==","public":"","private":"AA==","check":""}`)
	f.Add(gotpm.Marshal(gotpm.ECCSRKTemplate), []byte{7})
	f.Add(gotpm.Marshal(gotpm.RSAEKTemplate), []byte{7})
	f.Add(gotpm.Marshal(gotpm.TPMTPublic{
		Type: gotpm.TPMAlgKeyedHash, NameAlg: gotpm.TPMAlgSHA256,
		Parameters: gotpm.NewTPMUPublicParms(gotpm.TPMAlgKeyedHash, &gotpm.TPMSKeyedHashParms{}),
	}), []byte{1, 2})
	nowhere := tpm2.New(tpm2.Config{Device: f.TempDir() + "/none"})
	f.Fuzz(func(t *testing.T, public, private []byte) {
		content := forged(t, good, func(f *form) { f.Public, f.Private = public, private })
		_ = refused(t, nowhere, content)
	})
}
