package scheduled

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
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
		config:    Config{Store: into, NodeID: "one", Log: hclog.NewNullLogger(), Now: time.Now, Counts: uncounted{}, Tell: func(string) {}, Publish: func(string, string) {}},
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

// TestPublish holds that the schedule and the newest good snapshot are shown, each change once.
func TestPublish(t *testing.T) {
	shown, changes := make(map[string]string), 0
	r := &runner{config: Config{Publish: func(name, value string) {
		shown[name] = value
		changes++
	}}}
	state := &store.State{Nodes: map[string]*clusterv1.NodeRecord{"one": {Id: "one"}}, Policy: &clusterv1.ClusterPolicy{}}
	want := func(what string, number int, values ...string) {
		t.Helper()
		changes = 0
		r.publish(state)
		r.publish(state)
		got := []string{shown[snapshot.ValueInterval], shown[snapshot.ValueAsked], shown[snapshot.ValueRevision]}
		if !slices.Equal(got, values) || changes != number {
			t.Errorf("%s: %q in %d changes, want %q in %d", what, got, changes, values, number)
		}
	}
	want("no schedule", 0, "", "", "")
	state.Policy.Snapshots = &clusterv1.SnapshotSchedule{IntervalSeconds: 3600}
	want("no good one", 1, "1h0m0s", "", "")
	one := &clusterv1.StoredSnapshot{Task: &clusterv1.SnapshotTask{Number: 1, Asked: timestamppb.New(time.Unix(2_000_000_000, 0))}, Revision: 4711, Recipient: "age1former"}
	state.Snapshots = map[string]*clusterv1.NodeSnapshots{"one": {Snapshots: []*clusterv1.StoredSnapshot{one}}}
	want("the first good one", 2, "1h0m0s", "2033-05-18T03:33:20Z", "4711")
	state.Policy.RecoveryRecipient = "age1new"
	want("one that the recovery key does not open", 2, "1h0m0s", "", "")
	state.Policy.RecoveryRecipient = ""
	want("it opens it again", 2, "1h0m0s", "2033-05-18T03:33:20Z", "4711")
	state.Policy.Snapshots = nil
	want("no schedule any more", 3, "", "", "")
}

// TestGoodAt holds that the metric never hides by a time in the future that snapshots are not taken any more.
func TestGoodAt(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	state := &store.State{
		Nodes:  map[string]*clusterv1.NodeRecord{"one": {Id: "one"}},
		Policy: &clusterv1.ClusterPolicy{Snapshots: &clusterv1.SnapshotSchedule{IntervalSeconds: 3600}},
	}
	if at := goodAt(state, now); !at.IsZero() {
		t.Errorf("without one: %s", at)
	}
	for ahead, want := range map[time.Duration]time.Time{-time.Hour: now.Add(-time.Hour), time.Minute: now, 2 * time.Hour: now, 3 * time.Hour: {}} {
		task := &clusterv1.SnapshotTask{Number: 1, Asked: timestamppb.New(now.Add(ahead))}
		state.Snapshots = map[string]*clusterv1.NodeSnapshots{"one": {Snapshots: []*clusterv1.StoredSnapshot{{Task: task}}}}
		if at := goodAt(state, now); !at.Equal(want) {
			t.Errorf("one that is %s ahead: %s, want %s", ahead, at, want)
		}
	}
}
