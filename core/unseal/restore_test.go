package unseal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestRestore holds that a node that is restored is of the snapshot's cluster, goes on with the same snapshot only, and is none before it is a member.
func TestRestore(t *testing.T) {
	b := newBench(t, directory(t), storage.Plain, false)
	b.disk = nil
	b.parameters.Volume.Kind = &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}
	b.parameters.GetBootstrap().RecoveryRecipient = ""
	b.parameters.Directories = &nodev1.Directories{System: b.layout.System, Data: b.layout.Data, Run: b.layout.Run}
	mark := params.OpenMark("")
	one, other := &unseal.Restore{ClusterID: otherCluster, Snapshot: "aa", Taken: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}, &unseal.Restore{ClusterID: otherCluster, Snapshot: "bb"}
	check := func(restore *unseal.Restore) error {
		t.Helper()
		return unseal.CheckRestore(b.parameters, mark, restore, false)
	}
	if err := errors.Join(check(one), check(nil)); err != nil {
		t.Errorf("on an empty machine: %v", err)
	}
	b.restore = one
	made := b.up(t).Configuration
	if made.ClusterID != otherCluster || made.Restored != "aa" || made.Phase != seal.Forming {
		t.Errorf("made %+v", made)
	}
	if again := b.up(t).Configuration; again.NodeID() != made.NodeID() || again.Restored != "aa" {
		t.Errorf("again %+v", again)
	}
	var unfinished *unseal.UnfinishedError
	for name, restore := range map[string]*unseal.Restore{"no snapshot": nil, "another snapshot": other} {
		if err := check(restore); !errors.As(err, &unfinished) || unfinished.NodeID != made.NodeID() || unfinished.Snapshot != "aa" {
			t.Errorf("%s: %v", name, err)
		}
		b.kill(t)
		b.restore = restore
		if err := b.start(t); !errors.As(err, &unfinished) {
			t.Errorf("started with %s: %v", name, err)
		}
	}
	b.restore = one
	b.up(t)
	if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase = seal.Member }); err != nil {
		t.Fatal(err)
	}
	if err := check(nil); err != nil {
		t.Errorf("of a member: %v", err)
	}
	var restored *unseal.RestoredError
	if err := check(one); !errors.As(err, &restored) || restored.NodeID != made.NodeID() || !strings.Contains(err.Error(), "2026-11-28T12:00:00Z") {
		t.Errorf("the same snapshot on a member: %v", err)
	}
	var occupied *unseal.OccupiedError
	if err := check(other); !errors.As(err, &occupied) || occupied.NodeID != made.NodeID() {
		t.Errorf("another snapshot on a member: %v", err)
	}
	b.kill(t)

	// Something that is none of a node is in the way, too, and parameters that made a node make no other one.
	if err := os.Remove(b.layout.Configuration()); err != nil {
		t.Fatal(err)
	}
	var consumed *params.ConsumedError
	if err := check(one); !errors.As(err, &consumed) {
		t.Errorf("with parameters that made a node: %v", err)
	}
	if err := unseal.CheckRestore(b.parameters, mark, one, true); err == nil {
		t.Error("a volume is left, and is taken for nothing")
	}
	if err := os.RemoveAll(b.layout.Data); err != nil {
		t.Fatal(err)
	}
	if err := unseal.CheckRestore(b.parameters, mark, one, true); err != nil {
		t.Errorf("with nothing left: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(b.layout.Data, "pictures"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unseal.CheckRestore(b.parameters, mark, one, true); err == nil {
		t.Error("a directory that is not empty is taken for one")
	}
}
