package unseal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// What lies where the volume of a node that was removed was, and is another node's or nobody knows whose, is not erased, by no start of its core.
func TestDisownedSparesWhatIsNotItsOwn(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.disk = nil
	b.parameters.Volume.Kind = &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}
	b.up(t)
	precious := filepath.Join(b.layout.Roles(), "store", "db")
	write := func() {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(precious), 0o700), os.WriteFile(precious, []byte("another node's"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write()
	own, err := os.ReadFile(b.layout.Volume())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.room.Disown("gone"); err != nil {
		t.Fatal(err)
	}
	spared := func(what string) {
		t.Helper()
		for range 2 {
			var other *storage.VolumeError
			if err := b.room.Wipe(t.Context()); !errors.As(err, &other) {
				t.Fatalf("%s: %v", what, err)
			}
			if _, err := os.Stat(precious); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := b.start(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Remove(b.layout.Volume()); err != nil {
		t.Fatal(err)
	}
	spared("no mark")
	if err := storage.WriteJSON(b.layout.Volume(), storage.Volume{Version: 1, Kind: storage.Plain, ClusterID: otherCluster, NodeID: "another"}, 0o400); err != nil {
		t.Fatal(err)
	}
	spared("the mark of another node")
	if err := storage.WriteFile(b.layout.Volume(), own, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft(t)
	// Nothing is asked of a directory in which there is nothing to erase.
	if err := errors.Join(os.Remove(b.layout.Volume()), b.start(t)); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Wipe(t.Context()); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	// A node that was put there since.
	write()
	spared("another node since")
}

// Whether the node was removed is told while a step is taken, however long that lasts.
func TestDisownedIsToldMeanwhile(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	// The disk does not answer.
	b.disk.mu.Lock()
	o := b.open()
	b.until(t, "begins", func(s *clusterv1.StorageStatus) bool { return s.GetStep() == string(checkpoint.MakeConfiguration) })
	told := make(chan bool, 1)
	go func() { told <- b.room.Disowned() != nil }()
	select {
	case removed := <-told:
		if removed {
			t.Error("a node that was not removed says so")
		}
	case <-time.After(5 * time.Minute):
		t.Error("it is not told before the step has ended")
	}
	b.disk.mu.Unlock()
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
}
