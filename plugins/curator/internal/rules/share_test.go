package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// One operator makes a quarter, all operators leave the last hundred to the holder of the owner key, and nobody makes more than there may be.
func TestShares(t *testing.T) {
	made := make(rules.Made)
	want := func(maker, why string) {
		t.Helper()
		if full := made.Full(maker); (full == "") != (why == "") || !strings.Contains(full, why) {
			t.Errorf("%s is told %q, want %q", maker, full, why)
		}
	}
	make := func(maker string, count int) {
		for range count {
			want(maker, "")
			made.Add(maker)
		}
	}
	make("alice", 200)
	make("operator alice", 50) // as records of operators have it
	want("alice", "operator alice has made 250 of them, and one operator may have made 250")
	want("operator alice", "operator alice")
	for n := range 5 {
		make(fmt.Sprintf("bob-%d", n), 130)
	}
	want("carol", "operators have made 900 of them, and the other 100")
	want("alice", "alice")
	make("owner", 100)
	want("owner", "there are 1000 already")
	want("carol", "there are 1000 already")
}

// The records of all nodes have a bound, of which operators leave a part to owners. What takes no more than before is always let through.
func TestRoomForNode(t *testing.T) {
	record := func(id string, bytes int) *clusterv1.NodeRecord {
		return &clusterv1.NodeRecord{Id: id, Roles: []*clusterv1.RoleAssignment{{Role: "role", Configuration: strings.Repeat("x", bytes)}}}
	}
	nodes := map[string]*clusterv1.NodeRecord{"a": record("a", rules.MaxNodes/8*7-1000), "b": record("b", 100)}
	for _, test := range []struct {
		by    clusterv1.Caller
		after *clusterv1.NodeRecord
		fits  bool
	}{
		{clusterv1.Caller_CALLER_OPERATOR, record("b", 500), true},
		{clusterv1.Caller_CALLER_OPERATOR, record("b", 2000), false},
		{clusterv1.Caller_CALLER_OPERATOR, record("c", 2000), false},
		{clusterv1.Caller_CALLER_OPERATOR, record("a", rules.MaxNodes/8*7-2000), true},
		{clusterv1.Caller_CALLER_OWNER, record("c", 2000), true},
		{clusterv1.Caller_CALLER_OWNER, record("c", rules.MaxNodes/8), true},
		{clusterv1.Caller_CALLER_OWNER, record("c", rules.MaxNodes/8+1000), false},
	} {
		problems := rules.RoomForNode("configuration", test.by, nodes, test.after)
		if fits := len(problems) == 0; fits != test.fits {
			t.Errorf("%v has node %s with %d bytes: %v", test.by, test.after.GetId(), len(test.after.GetRoles()[0].GetConfiguration()), problems)
		}
	}
}
