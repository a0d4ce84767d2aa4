package seal_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
)

// What the version before has written, which knew only nodes that had made their cluster, is read, and written anew in the present version.
func TestEarlierVersion(t *testing.T) {
	old, err := os.ReadFile("testdata/version2.json")
	must(t, err)
	store, path := newStore(t, seal.File{})
	must(t, os.WriteFile(path, old, 0o400))
	head, err := store.Head()
	must(t, err)
	if !head.StoreFormed || head.Phase != seal.Member {
		t.Errorf("head %+v", head)
	}
	c, err := store.Load(t.Context())
	must(t, err)
	defer c.Destroy()
	if !c.StoreFormed || c.Registration != nil || c.NodeID() != head.NodeID || c.NUK == nil {
		t.Errorf("loaded %+v", c)
	}
	// To be sealed anew does not change the version, what is saved does.
	same := func(_ context.Context, key *keys.Secret) (json.RawMessage, error) {
		return seal.File{}.Seal(t.Context(), key)
	}
	must(t, store.Reseal(t.Context(), same))
	if again, err := seal.NewStore(path, seal.File{}).Load(t.Context()); err != nil || !again.StoreFormed {
		t.Fatalf("sealed anew: %v", err)
	}
	c.Location = "/e"
	must(t, store.Save(t.Context(), c))
	content, err := os.ReadFile(path)
	must(t, err)
	again, err := seal.NewStore(path, seal.File{}).Load(t.Context())
	must(t, err)
	defer again.Destroy()
	if !bytes.Contains(content, []byte(`"version": 3`)) || again.Location != "/e" || !again.StoreFormed {
		t.Errorf("saved %+v:\n%s", again, content)
	}
}

// A node that registers has no owner key before it is a member, and goes the way of its own.
func TestRegistering(t *testing.T) {
	store, _ := newStore(t, seal.File{})
	c := configuration(t)
	c.Owner = nil
	for _, phase := range []seal.Phase{seal.Made, seal.Formatting, seal.Registering, seal.Registered, seal.Committing} {
		c.Phase = phase
		must(t, store.Save(t.Context(), c))
	}
	c.Phase = seal.Member
	if err := store.Save(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no owner key") {
		t.Errorf("a member without an owner key: %v", err)
	}
	c.Owner = make([]byte, ed25519.PublicKeySize)
	must(t, store.Save(t.Context(), c))
	c.Registration = &seal.Registration{}
	if err := store.Save(t.Context(), c); err == nil || !strings.Contains(err.Error(), "CA") {
		t.Errorf("without pins: %v", err)
	}
}
