package keyfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/cli/keyfile"
)

// Whatever a file of a key holds, it is a key or an error, which does not repeat what may be a private key.
func FuzzKeys(f *testing.F) {
	path := filepath.Join(f.TempDir(), "key")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := keyfile.Read(path, "the owner key", "--owner-key"); (len(key) == 64) == (err != nil) {
			t.Errorf("key of %d bytes, %v", len(key), err)
		}
		key, err := keyfile.Public(path)
		if (len(key) == 32) == (err != nil) {
			t.Errorf("key of %d bytes, %v", len(key), err)
		}
		if err != nil && len(content) > 40 && bytes.Contains([]byte(err.Error()), content[:40]) {
			t.Errorf("the error repeats what the file holds: %v", err)
		}
	})
}
