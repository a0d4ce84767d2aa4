package steward

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// sweeps is a store that counts how often it is swept.
type sweeps struct {
	Store
	err  error
	made int
}

func (s *sweeps) SweepIssued(context.Context, time.Time) (int, error) {
	s.made++
	return 0, s.err
}

func (*sweeps) UpdateFenced(context.Context, store.Call, *store.Fence, func(*store.State) (*store.Change, error)) (*store.State, error) {
	return nil, errors.New("a record is damaged")
}

// A record that is damaged keeps tombstones from being removed. That is tried again when the next sweep is due, and not at once.
func TestSweepsWithADamagedRecord(t *testing.T) {
	state := &store.State{Nodes: make(map[string]*clusterv1.NodeRecord)}
	for n := range keptTombstones + 1 {
		id := strconv.Itoa(n)
		state.Nodes[id] = &clusterv1.NodeRecord{Id: id, State: clusterv1.NodeState_NODE_STATE_DECOMMISSIONED}
	}
	synctest.Test(t, func(t *testing.T) {
		s := new(sweeps)
		call := func(string, map[string]string) store.Call { return nil }
		w := &worker{config: Config{Store: s, Now: time.Now, Log: hclog.NewNullLogger(), Call: call}, silent: make(map[string]time.Time)}
		for want := 1; want <= 3; want++ {
			if _, err := w.sweep(t.Context(), state); err == nil {
				t.Error("nobody is told that the tombstones stay")
			}
			if again, err := w.sweep(t.Context(), state); err != nil || again != sweepEvery || s.made != want {
				t.Errorf("swept %d times, want %d; again in %v, %v", s.made, want, again, err)
			}
			time.Sleep(sweepEvery)
		}
	})
}

// Certificates are swept at the beginning of a term, and then now and then, however often the steward looks at the cluster.
func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweeps{err: errors.New("the store is away")}
		w := &worker{config: Config{Store: s, Now: time.Now, Log: hclog.NewNullLogger()}, silent: make(map[string]time.Time)}
		if _, err := w.tend(t.Context(), new(store.State)); err == nil {
			t.Error("a sweep that failed is none")
		}
		s.err, s.made = nil, 0
		for want := 1; want <= 3; want++ {
			for range 3 {
				again, err := w.tend(t.Context(), new(store.State))
				if err != nil || again <= 0 || again > sweepEvery || s.made != want {
					t.Fatalf("swept %d times, want %d; again in %v, %v", s.made, want, again, err)
				}
				time.Sleep(again / 2)
			}
			time.Sleep(sweepEvery / 8)
		}
	})
}

// TestSweepsAFullStore holds that what makes room is done where the store takes nothing any more, not even the word that a snapshot is due.
func TestSweepsAFullStore(t *testing.T) {
	state := &store.State{
		Nodes:    map[string]*clusterv1.NodeRecord{"one": {Id: "one", State: clusterv1.NodeState_NODE_STATE_UP, Roles: []*clusterv1.RoleAssignment{{Role: "curator"}}}},
		Statuses: map[string]*clusterv1.NodeStatus{"one": {Instances: []*clusterv1.InstanceStatus{{Role: "curator", State: hostv1.InstanceState_INSTANCE_STATE_READY}}}},
		Beats:    map[string]clientv3.LeaseID{"one": 1},
		Plugins:  map[string]*clusterv1.PluginRecord{"curator": {Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "curator", Provides: []string{"reeve.cluster.v1"}}}}}},
		Store:    &consensusv1.StoreState{Members: []*consensusv1.StoreStateMember{{NodeId: "one", MemberId: "m", Healthy: true}}},
		Policy:   &clusterv1.ClusterPolicy{Snapshots: &clusterv1.SnapshotSchedule{IntervalSeconds: 3600, Keep: 2}},
	}
	s := new(sweeps)
	call := func(string, map[string]string) store.Call { return nil }
	w := &worker{config: Config{Store: s, Now: time.Now, Log: hclog.NewNullLogger(), Call: call}, silent: make(map[string]time.Time)}
	if _, err := w.tend(t.Context(), state); err == nil || s.made != 1 {
		t.Errorf("swept %d times: %v", s.made, err)
	}
}
