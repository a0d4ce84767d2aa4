package users

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestRangeIsChosen(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	choose := func(name string, first, count uint32) (*Users, error) {
		owner := filepath.Join(dir, name)
		if err := os.MkdirAll(owner, 0o755); err != nil {
			t.Fatal(err)
		}
		users, err := Reserve(file, filepath.Join(owner, "uids.json"), owner, &nodev1.UserRange{First: first, Count: count})
		// Its core has ended: what is reserved stays so all the same.
		if err == nil {
			end(t, users)
		}
		return users, err
	}
	// Above all that freeRange gives in a short test.
	const first = 2000000000
	users, err := choose("a", first, 16)
	if err != nil {
		t.Fatal(err)
	}
	if uid := uidOf(t, users, "one"); uid != first+1 {
		t.Errorf("user %d", uid)
	}
	for n := range 14 {
		uidOf(t, users, "role-"+string(rune('a'+n)))
	}
	if _, _, err := users.Of("one-too-many"); !errors.Is(err, ErrRangesFull) || !strings.Contains(err.Error(), "sandbox.users") {
		t.Errorf("error %v", err)
	}
	var taken *RangeError
	for name, other := range map[string][2]uint32{"same": {first, 16}, "into": {first - 8, 16}, "last": {first + 15, 16}, "around": {first - 8, 100}} {
		if _, err := choose("b", other[0], other[1]); !errors.As(err, &taken) || !strings.Contains(err.Error(), filepath.Join(dir, "a")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := choose("b", first+16, 16); err != nil {
		t.Error(err)
	}
	// An account of the host: nobody.
	if _, err := choose("c", 65530, 16); !errors.As(err, &taken) || !strings.Contains(err.Error(), "/etc/") {
		t.Errorf("error %v", err)
	}
	// Out of the reach of some tools.
	if _, err := choose("c", 1<<31-8, 16); err == nil {
		t.Error("IDs above 2^31 were given")
	}
	// Another choice gives a role another user, at the same place.
	if users, err = choose("a", first+100, 32); err != nil {
		t.Fatal(err)
	}
	if uid := uidOf(t, users, "one"); uid != first+101 {
		t.Errorf("user %d", uid)
	}
	// A range with too little for what there is.
	if users, err = choose("a", first+100, 16); err != nil {
		t.Fatal(err)
	}
	uidOf(t, users, "role-n") // the last of 15
	// Without a choice it is one of the ranges again that nobody chooses.
	if uid := uidOf(t, reserve(t, file, dir, "a"), "one"); uid >= first {
		t.Errorf("user %d", uid)
	}
	// The choice of a node that is gone is free.
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := choose("d", first+16, 64); err != nil {
		t.Error(err)
	}
}
