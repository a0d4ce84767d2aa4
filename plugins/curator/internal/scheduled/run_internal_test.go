package scheduled

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// written is what was written last.
type written struct {
	ca.Keys
	last *clusterv1.NodeSnapshots
}

func (w *written) PutSnapshots(_ context.Context, kept *clusterv1.NodeSnapshots) error {
	w.last = kept
	return nil
}

// uncounted counts nothing.
type uncounted struct{}

func (uncounted) Snapshots(time.Time, int) {}
func (uncounted) SnapshotFailed()          {}

// TestStoreOfAnotherGeneration holds that a curator which outlives a restore does not take tasks of the restored store for ended, because it has ended those of the former one.
func TestStoreOfAnotherGeneration(t *testing.T) {
	into := new(written)
	r := &runner{
		config:    Config{Store: into, NodeID: "one", Log: hclog.NewNullLogger(), Now: time.Now, Counts: uncounted{}, Tell: func(string) {}},
		directory: OpenDirectory(t.TempDir()+"/snapshots", "one"),
		told:      &clusterv1.NodeSnapshots{NodeId: "one", Ended: &clusterv1.SnapshotTask{Number: 5}},
	}
	state := &store.State{Snapshots: map[string]*clusterv1.NodeSnapshots{
		"one": {NodeId: "one", Ended: &clusterv1.SnapshotTask{Number: 1}, Snapshots: []*clusterv1.StoredSnapshot{{Name: "former"}}},
	}}
	if err := r.tend(t.Context(), state); err != nil || into.last != nil {
		t.Fatalf("the state that is behind: %v, %v", into.last, err)
	}
	state.Generation = &consensusv1.StoreGeneration{Number: 1}
	if err := r.tend(t.Context(), state); err != nil || into.last.GetEnded().GetNumber() != 1 || len(into.last.GetSnapshots()) != 0 {
		t.Errorf("the store of another generation: %v, %v", into.last, err)
	}
}
