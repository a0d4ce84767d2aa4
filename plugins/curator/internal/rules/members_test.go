package rules_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestBridge has two members that do not reach each other, while the third reaches both: that one may neither leave nor be removed, and each of the others may.
func TestBridge(t *testing.T) {
	record := func(id string, roles ...*clusterv1.RoleAssignment) *clusterv1.NodeRecord {
		return &clusterv1.NodeRecord{Id: id, State: clusterv1.NodeState_NODE_STATE_UP, Roles: roles}
	}
	member := func(id string, unreached ...string) *consensusv1.StoreStateMember {
		return &consensusv1.StoreStateMember{NodeId: id, MemberId: "1" + id, Healthy: true, Unreached: unreached}
	}
	voter := &clusterv1.RoleAssignment{Role: "consensus"}
	state := func(members ...*consensusv1.StoreStateMember) *store.State {
		nodes := make(map[string]*clusterv1.NodeRecord)
		for _, member := range members {
			nodes[member.GetNodeId()] = record(member.GetNodeId(), voter)
		}
		return &store.State{
			Nodes: nodes,
			Plugins: map[string]*clusterv1.PluginRecord{"consensus": {Name: "consensus", Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{
				Name: "consensus", Provides: []string{store.CapabilityConsensus},
			}}}}},
			Store: &consensusv1.StoreState{Members: members},
		}
	}
	cut, whole := state(member("a", "b"), member("b", "a"), member("c")), state(member("a"), member("b"), member("c"))
	for id, refused := range map[string]bool{"a": false, "b": false, "c": true} {
		without := &store.Change{Nodes: []*clusterv1.NodeRecord{record(id)}}
		if why := rules.Unsafe(cut, cut.With(without)); (len(why) > 0) != refused || refused && !strings.Contains(why[0], "do not reach each other (a and b)") {
			t.Errorf("that %s leaves: %q", id, why)
		}
		if why, _ := rules.Abrupt(cut, id); (len(why) > 0) != refused || refused && !strings.Contains(why[0], "some do not reach each other: a and b") {
			t.Errorf("that %s is removed: %q", id, why)
		}
		if why := rules.Unsafe(whole, whole.With(without)); len(why) > 0 {
			t.Errorf("that %s leaves a store whose members reach each other: %q", id, why)
		}
		if why, _ := rules.Abrupt(whole, id); len(why) > 0 {
			t.Errorf("that %s is removed from a store whose members reach each other: %q", id, why)
		}
	}
	// That two do not reach each other is not the reason where those that answer are no majority.
	silent := state(member("a", "b"), member("b", "a"), member("c"), &consensusv1.StoreStateMember{NodeId: "d", MemberId: "1d"}, &consensusv1.StoreStateMember{NodeId: "e", MemberId: "1e"})
	why := rules.Unsafe(silent, silent.With(&store.Change{Nodes: []*clusterv1.NodeRecord{record("c")}}))
	if len(why) != 1 || !strings.Contains(why[0], "since of the 4 voting members left those of d, e do not answer: bring them back") || !strings.Contains(why[0], "; others do not reach each other (a and b)") {
		t.Errorf("that c leaves while others do not answer: %q", why)
	}
}
