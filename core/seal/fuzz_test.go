package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
)

// Whatever is in the file, it is loaded whole or not at all.
func FuzzLoad(f *testing.F) {
	path := filepath.Join(f.TempDir(), "configuration.json")
	// That with which the file in testdata was written: each new one is encrypted anew.
	c := configuration(f)
	c.NodeKey, c.JoinKey = ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	c.Owner = make([]byte, 32)
	for i, secret := range []**keys.Secret{&c.NUK, &c.NextNUK, &c.CUK, &c.Data, &c.Ticket} {
		var err error
		*secret, err = keys.SecretOf(bytes.Repeat([]byte{byte(i)}, keys.Size))
		must(f, err)
	}
	good, err := os.ReadFile("testdata/version3.json")
	must(f, err)
	must(f, os.WriteFile(path, good, 0o600))
	file := reopen(f, path)
	f.Add(good)
	f.Add([]byte(strings.ToUpper(string(good))))
	f.Add([]byte(`{"version":1,"sealer":"file","cluster_id":"c1","phase":"forming","sealed":"AAAA"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`{"version":2,"content":{"open":{"sealer":"file"},"key":{"key":"AA=="},"secrets":"AA=="}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		rewrite(t, file, content)
		got, err := seal.NewStore(path, seal.File{}).Load(t.Context())
		if bytes.Equal(content, good) {
			must(t, err)
		}
		if (got == nil) == (err == nil) {
			t.Fatalf("a file that is there gave %v, %v", got, err)
		}
		if got != nil {
			if diff := cmp.Diff(c, got); diff != "" {
				t.Fatal(diff)
			}
			got.Destroy()
		}
	})
}

// Whatever the file says of the key that was sealed by a file, it is a key or an error.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{`{"key":"AAAA"}`, `{ "key" : "AA==" }`, `{"key":""}`, `null`, `{"key":"A A="}`, "{\"key\":\"AA=\n=\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		secret, err := seal.File{}.Unseal(t.Context(), sealed)
		if (secret == nil) == (err == nil) {
			t.Fatalf("%v, %v", secret, err)
		}
		if err != nil {
			return
		}
		defer secret.Destroy()
		again, err := seal.File{}.Seal(t.Context(), secret)
		must(t, err)
		var compact bytes.Buffer
		must(t, json.Compact(&compact, sealed))
		if !bytes.Equal(again, compact.Bytes()) {
			t.Errorf("%s is sealed as %s", sealed, again)
		}
	})
}
