package cache

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// publishing is a role that publishes some KiB of values, and some of endpoints.
func publishing(role string, values, endpoints int) *hostv1.DirectoryRole {
	published := &hostv1.DirectoryRole{Role: role, Values: make(map[string]string)}
	for n := range values {
		published.Values[fmt.Sprint(n)] = strings.Repeat("v", 1000)
	}
	for n := range endpoints {
		published.Endpoints = append(published.Endpoints, &rolev1.Endpoint{Name: fmt.Sprint(n), Address: strings.Repeat("a", 1000)})
	}
	return published
}

// What is published beyond the bounds is left out: of a role that has more than a role may, its values; then the values of who has most of them, and endpoints only after all values.
func TestWhatIsLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		roles []*hostv1.DirectoryRole
		room  int
		want  string
	}{
		"all fits":       {[]*hostv1.DirectoryRole{publishing("a", 20, 2), publishing("b", 20, 2)}, 64 << 10, "a 20 2, b 20 2"},
		"one role":       {[]*hostv1.DirectoryRole{publishing("a", 34, 2), publishing("b", 4, 2)}, 64 << 10, "a 0 2, b 4 2"},
		"the largest":    {[]*hostv1.DirectoryRole{publishing("a", 20, 1), publishing("b", 12, 1), publishing("c", 3, 1)}, 20 << 10, "a 0 1, b 12 1, c 3 1"},
		"values first":   {[]*hostv1.DirectoryRole{publishing("a", 0, 18), publishing("b", 17, 0)}, 32 << 10, "a 0 18, b 0 0"},
		"then endpoints": {[]*hostv1.DirectoryRole{publishing("a", 2, 18), publishing("b", 2, 3)}, 16 << 10, "a 0 0, b 0 3"},
	} {
		node := &hostv1.DirectoryNode{Roles: test.roles}
		publish(node, test.room)
		var got []string
		for _, role := range node.GetRoles() {
			got = append(got, fmt.Sprintf("%s %d %d", role.GetRole(), len(role.GetValues()), len(role.GetEndpoints())))
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Who is in the directory shares it, and nobody else: there may be many tombstones.
func TestRoomIsThatOfMembers(t *testing.T) {
	state := &store.State{Nodes: make(map[string]*clusterv1.NodeRecord)}
	add := func(n int, nodeState clusterv1.NodeState) {
		for range n {
			state.Nodes[fmt.Sprint(len(state.Nodes))] = &clusterv1.NodeRecord{State: nodeState}
		}
	}
	add(1000, clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	add(1000, clusterv1.NodeState_NODE_STATE_NEW)
	add(100, clusterv1.NodeState_NODE_STATE_UP)
	add(28, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING)
	if got := Room(state); got != limits.ReportedPublished {
		t.Errorf("128 members have room for %d bytes each", got)
	}
	add(1, clusterv1.NodeState_NODE_STATE_UP)
	if got := Room(state); got != limits.ReportedPublished*15/16 {
		t.Errorf("129 members have room for %d bytes each", got)
	}
}

// All nodes together publish what a message has room for. One that comes or goes takes or gives an eighth at most, and that seldom.
func TestRoomChangesInSmallSteps(t *testing.T) {
	last, changes := room(0), 0
	for members := range 20_000 {
		now := room(members)
		switch {
		case now < minRoom || now > limits.ReportedPublished || now > minRoom && now*members > limits.DirectoryPublished:
			t.Fatalf("%d members have room for %d bytes each", members, now)
		case now > last || now < last-last/8:
			t.Fatalf("%d members have room for %d bytes each, and one less for %d", members, now, last)
		case now != last:
			changes++
		}
		last = now
	}
	if last != minRoom || changes > 6*8 {
		t.Errorf("it changes %d times, and ends at %d bytes", changes, last)
	}
}
