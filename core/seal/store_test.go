package seal_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

func TestSaveAndLoad(t *testing.T) {
	for name, sealer := range inorder.Of(map[string]seal.Sealer{"file": seal.File{}, "chip": &chip{}}) {
		t.Run(name, func(t *testing.T) {
			store, path := newStore(t, sealer)
			if got, err := store.Load(t.Context()); err != nil || got != nil {
				t.Fatalf("before the first Save: %v, %v", got, err)
			}
			if head, err := store.Head(); err != nil || head != nil {
				t.Fatalf("before the first Save: %v, %v", head, err)
			}
			want := configuration(t)
			for _, phase := range []seal.Phase{seal.Made, seal.Formatting, seal.Forming, seal.Formed, seal.Member} {
				want.Phase = phase
				if phase == seal.Forming {
					want.CUK, want.Data, want.NextNUK, want.CUKSources = nil, nil, nil, nil
				}
				must(t, store.Save(t.Context(), want))
				loads(t, seal.NewStore(path, sealer), want)
			}
			loads(t, store, want)
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			head, err := store.Head()
			must(t, err)
			if diff := cmp.Diff(&seal.Head{
				Sealer: name, ClusterID: "c1", NodeID: want.NodeID(), Owner: want.Owner, RecoveryRecipient: "age1abc", VolumeKind: "fscrypt", Location: "/srv/<a> & b",
				Phase: seal.Member, StoreFormed: true, Registration: want.Registration,
			}, head); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The sealer is asked once in a start; what is secret is nowhere in the file, not even twice the same.
func TestSealerIsAskedOnce(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	c := configuration(t)
	must(t, store.Save(t.Context(), c))
	first, err := os.ReadFile(path)
	must(t, err)
	sealer.failing = errors.New("gone")
	for range 3 {
		must(t, store.Save(t.Context(), c))
	}
	second, err := os.ReadFile(path)
	must(t, err)
	if bytes.Equal(first, second) {
		t.Error("the same configuration is encrypted to the same bytes")
	}
	if sealer.calls != 1 {
		t.Errorf("the sealer was asked %d times", sealer.calls)
	}
	if _, err := store.Head(); err != nil || sealer.calls != 1 {
		t.Errorf("the head needs the sealer: %v", err)
	}
	var unreadable *seal.UnreadableError
	if _, err := store.Load(t.Context()); !errors.As(err, &unreadable) || !errors.Is(err, sealer.failing) || !strings.Contains(err.Error(), "reeve node unlock") {
		t.Errorf("without its sealer: %v", err)
	}
	// What could not be loaded again is still what the store has.
	must(t, store.Save(t.Context(), c))
	sealer.failing = nil
	loads(t, store, c)
	store.Forget()
	if err := store.Save(t.Context(), c); err == nil {
		t.Error("saved without a key")
	}
	loads(t, store, c)
}

// A configuration that was not loaded is never replaced by Save, and nothing goes back.
func TestSaveIsCareful(t *testing.T) {
	store, path := newStore(t, seal.File{})
	c := configuration(t)
	c.Phase = seal.Formed
	must(t, store.Save(t.Context(), c))
	before, err := os.ReadFile(path)
	must(t, err)
	unchanged := func(what string) {
		t.Helper()
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Fatalf("%s has changed the file: %v", what, err)
		}
	}
	if err := seal.NewStore(path, seal.File{}).Save(t.Context(), configuration(t)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("another configuration over one that was not loaded: %v", err)
	}
	unchanged("a Save before a Load")
	back := *c
	back.Phase = seal.Forming
	if err := store.Save(t.Context(), &back); err == nil || !strings.Contains(err.Error(), "cannot go back") {
		t.Errorf("back to an earlier phase: %v", err)
	}
	unchanged("a Save of an earlier phase")
	for name, change := range map[string]func(*seal.Configuration){
		"no cluster": func(c *seal.Configuration) { c.ClusterID = "" }, "no node key": func(c *seal.Configuration) { c.NodeKey = nil },
		"no join key": func(c *seal.Configuration) { c.JoinKey = c.JoinKey[:8] }, "no owner": func(c *seal.Configuration) { c.Owner, c.Registration = nil, nil },
		"half an owner": func(c *seal.Configuration) { c.Owner = c.Owner[:8] },
		"no kind":       func(c *seal.Configuration) { c.VolumeKind = "" }, "no phase": func(c *seal.Configuration) { c.Phase = "dreaming" },
		"no NUK": func(c *seal.Configuration) { c.NUK = nil },
		"a destroyed NUK": func(c *seal.Configuration) {
			c.NUK = random(t, keys.Size)
			c.NUK.Destroy()
		},
	} {
		bad := *c
		change(&bad)
		if err := store.Save(t.Context(), &bad); err == nil {
			t.Errorf("saved with %s", name)
		}
		unchanged(name)
	}
	plain := *c
	plain.VolumeKind, plain.NUK = storage.Plain, nil
	must(t, store.Save(t.Context(), &plain))
	loads(t, store, &plain)
}
