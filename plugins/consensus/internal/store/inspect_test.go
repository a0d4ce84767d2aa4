package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/limits"
)

// TestUnreadIsNoDamage has a file that cannot be opened for a while keep the member from starting, and nothing else. Nobody looks for longer than is waited for.
func TestUnreadIsNoDamage(t *testing.T) {
	directory := storetest.Directory(t)
	_, stop := storetest.Open(t, directory, storetest.Plan)
	stop()
	for _, name := range []string{"wal/*.wal", "snap/db"} {
		found, err := filepath.Glob(filepath.Join(directory, "data/etcd/member", name))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", name, found, err)
		}
		if err := errors.Join(os.Rename(found[0], found[0]+".kept"), os.Symlink(found[0], found[0])); err != nil { // it leads to itself: ELOOP
			t.Fatal(err)
		}
		_, err = store.Open(storetest.Context(t), storetest.Config(t, directory), storetest.Plan)
		if damage := (*store.DamagedError)(nil); !errors.Is(err, store.ErrWaiting) || errors.As(err, &damage) {
			t.Errorf("%s cannot be opened: %v", name, err)
		}
		if err := os.Rename(found[0]+".kept", found[0]); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Open(ended, storetest.Config(t, directory), storetest.Plan); !errors.Is(err, context.Canceled) {
		t.Errorf("when nobody waits any more: %v", err)
	}
	storetest.Open(t, directory, storetest.Plan)
}

// TestDamageSaysWhatHelps holds that a role's reason has room for what to do, however much there is to say of the damage.
func TestDamageSaysWhatHelps(t *testing.T) {
	err := &store.DamagedError{
		File: "/var/lib/reeve/data/roles/consensus/etcd/member/wal/0000000000000000-0000000000000000.wal", Node: "reeve-" + strings.Repeat("0", 32),
		Cause: errors.New(strings.Repeat("ü", limits.Reason)),
	}
	text := err.Error()
	if len(text) > limits.Reason || !strings.Contains(text, ": üüü") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	for _, helps := range []string{"reeve store replace " + err.Node, "reeve store recover-quorum", "restore the cluster from a snapshot"} {
		if !strings.Contains(text, helps) {
			t.Errorf("it does not say %q: %s", helps, text)
		}
	}
}
