package seal_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
)

func TestReseal(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	c := configuration(t)
	if err := store.Reseal(t.Context(), sealer.Seal); err == nil {
		t.Error("sealed anew what there is not")
	}
	must(t, store.Save(t.Context(), c))
	must(t, store.Reseal(t.Context(), sealer.Seal))
	if len(sealer.kept) != 2 || !sealer.kept[0].Equal(sealer.kept[1]) {
		t.Fatalf("sealed: %v", sealer.kept)
	}
	// The former form is worth nothing any more, also after the next Save.
	sealer.kept[0] = random(t, keys.Size)
	loads(t, seal.NewStore(path, sealer), c)
	must(t, store.Save(t.Context(), c))
	loads(t, seal.NewStore(path, sealer), c)
	before, err := os.ReadFile(path)
	must(t, err)
	sealer.failing = errors.New("gone")
	if err := store.Reseal(t.Context(), sealer.Seal); !errors.Is(err, sealer.failing) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
}

func TestReplace(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	kept := path + ".unreadable"
	old, c := configuration(t), configuration(t)
	must(t, store.Save(t.Context(), old))
	unreadable, err := os.ReadFile(path)
	must(t, err)
	c.Phase = seal.Member
	// Another TPM, which has never seen the key.
	other := &chip{}
	store = seal.NewStore(path, other)
	if err := store.Replace(t.Context(), configuration(t)); err == nil {
		t.Error("replaced by one that may be formatted")
	}
	other.failing = errors.New("gone")
	if err := store.Replace(t.Context(), c); !errors.Is(err, other.failing) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, unreadable) {
		t.Errorf("a Replace that failed has changed the file: %v", err)
	}
	other.failing = nil
	must(t, os.WriteFile(kept, []byte("of an earlier recovery"), 0o400))
	// Again, as a node does that was stopped: what was there first is what is kept.
	for range 2 {
		must(t, store.Replace(t.Context(), c))
		loads(t, seal.NewStore(path, other), c)
		if content, err := os.ReadFile(kept); err != nil || !bytes.Equal(content, unreadable) {
			t.Fatalf("kept: %q, %v", content, err)
		}
	}
	must(t, store.Save(t.Context(), c))
	back := *c
	back.Phase = seal.Formed
	if err := store.Save(t.Context(), &back); err == nil {
		t.Error("a recovered node goes back")
	}
	// Where there is nothing, there is nothing to keep.
	must(t, errors.Join(os.Remove(path), os.Remove(kept)))
	must(t, seal.NewStore(path, other).Replace(t.Context(), c))
	loads(t, seal.NewStore(path, other), c)
	if _, err := os.Stat(kept); !os.IsNotExist(err) {
		t.Errorf("kept nothing: %v", err)
	}
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	if err := store.Replace(t.Context(), c); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("over a directory: %v", err)
	}
}
