package seal_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
)

// chip is a sealer that keeps what it seals to itself, as a TPM does, and can fail.
type chip struct {
	mu      sync.Mutex
	kept    []*keys.Secret
	failing error
	// calls counts what was asked of it.
	calls int
}

func (c *chip) Name() string { return "chip" }

func (c *chip) Seal(_ context.Context, secret *keys.Secret) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.failing != nil {
		return nil, c.failing
	}
	kept, err := secret.Clone()
	if err != nil {
		return nil, err
	}
	c.kept = append(c.kept, kept)
	return json.Marshal(map[string]int{"place": len(c.kept) - 1})
}

func (c *chip) Unseal(_ context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.failing != nil {
		return nil, c.failing
	}
	var at map[string]int
	if err := json.Unmarshal(sealed, &at); err != nil || at["place"] < 0 || at["place"] >= len(c.kept) {
		return nil, errors.New("no such place")
	}
	return c.kept[at["place"]].Clone()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rewrite replaces the content of an open file. It is not truncated first, which has some file systems write to the disk every time.
func rewrite(t testing.TB, file *os.File, content []byte) {
	t.Helper()
	_, err := file.WriteAt(content, 0)
	must(t, errors.Join(err, file.Truncate(int64(len(content)))))
}

// reopen opens a file that was written to be read only.
func reopen(t testing.TB, path string) *os.File {
	t.Helper()
	must(t, os.Chmod(path, 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

func random(t testing.TB, size int) *keys.Secret {
	t.Helper()
	s, err := keys.NewSecret(size)
	must(t, err)
	t.Cleanup(s.Destroy)
	return s
}

// configuration is one with everything in it.
func configuration(t testing.TB) *seal.Configuration {
	t.Helper()
	owner, node, err := ed25519.GenerateKey(nil)
	must(t, err)
	_, join, err := ed25519.GenerateKey(nil)
	must(t, err)
	return &seal.Configuration{
		ClusterID: "c1", NodeKey: node, JoinKey: join, Owner: owner, RecoveryRecipient: "age1abc", VolumeKind: "fscrypt", Location: "/srv/<a> & b", Phase: seal.Made,
		CUKSources: []string{"recovery", "tpm"}, NUK: random(t, keys.Size), NextNUK: random(t, keys.Size), CUK: random(t, keys.Size), Data: random(t, 64),
		StoreFormed: true, Ticket: random(t, keys.Size),
		Registration: &seal.Registration{TicketID: "0123456789abcdef", CAPins: [][]byte{make([]byte, 32)}, Curators: []string{"192.0.2.1:7400"}},
	}
}

func newStore(t testing.TB, sealer seal.Sealer) (*seal.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "configuration.json")
	return seal.NewStore(path, sealer), path
}

// loads fails the test unless that configuration is loaded.
func loads(t *testing.T, store *seal.Store, want *seal.Configuration) {
	t.Helper()
	got, err := store.Load(t.Context())
	must(t, err)
	defer got.Destroy()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
