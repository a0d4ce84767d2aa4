package steward

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Tombstones go by their age, and only where there are many.
func TestForgettable(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	state := &store.State{Nodes: make(map[string]*clusterv1.NodeRecord)}
	add := func(name string, count int, age time.Duration, as clusterv1.NodeState) {
		for n := range count {
			id := fmt.Sprintf("%s-%04d", name, n)
			state.Nodes[id] = &clusterv1.NodeRecord{Id: id, State: as, Removal: &clusterv1.Removal{Time: timestamppb.New(now.Add(-age - time.Duration(n)*time.Second))}}
		}
	}
	const gone = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
	add("member", 2000, 2*tombstoneAge, clusterv1.NodeState_NODE_STATE_UP)
	add("old", keptTombstones, 10*tombstoneAge, gone)
	if ids := forgettable(state, now); len(ids) != 0 {
		t.Errorf("those that stay for ever: %d are removed", len(ids))
	}
	add("young", 150, tombstoneAge-time.Hour, gone)
	ids := forgettable(state, now)
	if len(ids) != forgottenAtOnce || ids[0] != "old-0999" || ids[99] != "old-0900" {
		t.Fatalf("%d are removed: %v", len(ids), ids)
	}
	add("younger", keptTombstones-3, time.Hour, gone)
	for ids := forgettable(state, now); len(ids) > 0; ids = forgettable(state, now) {
		for _, id := range ids {
			delete(state.Nodes, id)
		}
	}
	left := 0
	for id := range state.Nodes {
		left += map[bool]int{true: 1}[state.Nodes[id].GetState() == gone]
		if slices.Contains([]string{"old-0000", "old-0500"}, id) {
			t.Errorf("%s is still there", id)
		}
	}
	if left != 150+keptTombstones-3 {
		t.Errorf("%d are kept: all of the last 30 days are", left)
	}
	// One that does not say when it was removed.
	state.Nodes["unsaid"] = &clusterv1.NodeRecord{Id: "unsaid", State: gone, Since: timestamppb.New(now.Add(-2 * tombstoneAge))}
	if ids := forgettable(state, now); !slices.Equal(ids, []string{"unsaid"}) {
		t.Errorf("%v", ids)
	}
}
