package unseal

import (
	"testing"

	"github.com/reeveproject/reeve/core/keys"
)

// FuzzForms reads what may stand where sealed forms are kept: whatever it is, there is a form or an error.
func FuzzForms(f *testing.F) {
	f.Add([]byte(`[{"a":1}]`))
	f.Add([]byte(`[{},{}]`))
	f.Add([]byte(`[{},{},{}]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		list, err := parseForms(encoded)
		if (err == nil) != (len(list) > 0) || len(list) > maxForms {
			t.Fatalf("%d forms, %v", len(list), err)
		}
	})
}

// TestFoundIsDestroyed holds that a key which was tried does not stay in memory.
func TestFoundIsDestroyed(t *testing.T) {
	secret, err := keys.NewSecret(keys.Size)
	if err != nil {
		t.Fatal(err)
	}
	f := &found{cuk: secret}
	f.destroy()
	if f.cuk.Len() != 0 {
		t.Error("a key that was tried is still there")
	}
}
