package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// TestLinks has three members say whom they reach.
func TestLinks(t *testing.T) {
	members := []store.Peer{{ID: 1, Node: "a"}, {ID: 2, Node: "b"}, {ID: 3, Node: "c"}}
	says := func(id uint64, reached, unreached string, ago int64) peers.State {
		one := func(list string) []string {
			return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' })
		}
		return peers.State{Member: peers.FormatMember(id), Asked: true, Reached: one(reached), Unreached: one(unreached), AskedAgo: ago}
	}
	id := peers.FormatMember
	for name, test := range map[string]struct {
		states map[uint64]peers.State
		silent []string
		cuts   []store.Cut
		threat string
	}{
		"all is well": {states: map[uint64]peers.State{1: says(1, id(2)+" "+id(3), "", 0), 2: says(2, id(1)+" "+id(3), "", 0), 3: says(3, id(1)+" "+id(2), "", 0)}},
		"one is dead": {
			states: map[uint64]peers.State{1: says(1, id(2), id(3), 0), 2: says(2, id(1), id(3), 0)}, silent: []string{"c"},
			threat: "of its 3 members that of c does not answer; start this node, or see that it is reached",
		},
		"one is dead, and another has not noticed yet": {
			states: map[uint64]peers.State{1: says(1, id(2), id(3), 0), 2: says(2, id(1)+" "+id(3), "", 9000)}, silent: []string{"c"}, threat: "of its 3 members that of c",
		},
		"a pair, as the third sees it": {
			states: map[uint64]peers.State{1: says(1, id(2)+" "+id(3), "", 0), 2: says(2, id(1), id(3), 0), 3: says(3, id(1), id(2), 0)},
			cuts:   []store.Cut{{From: "b", To: "c"}, {From: "c", To: "b"}}, threat: "the members of b and c do not reach each other, and others reach both; open the way between these nodes",
		},
		"a pair, as one of them sees it": {
			states: map[uint64]peers.State{1: says(1, id(2)+" "+id(3), "", 0), 2: says(2, id(1), id(3), 0)},
			cuts:   []store.Cut{{From: "b", To: "c"}}, threat: "the member of b does not reach that of c, which others reach; open the way",
		},
		"one is let out, and not in": {
			states: map[uint64]peers.State{1: says(1, id(2), id(3), 0), 2: says(2, id(1), id(3), 0), 3: says(3, id(1)+" "+id(2), "", 0)}, silent: []string{"c"},
			threat: "of its 3 members that of c does not answer",
		},
	} {
		silent, cuts := store.Links(members, test.states)
		status := store.Status{Silent: silent, Cuts: cuts, Members: make([]store.Member, 3)}
		if threat := status.Threat(); !slices.Equal(silent, test.silent) || !slices.Equal(cuts, test.cuts) || !strings.HasPrefix(threat, test.threat) || (threat == "") != (test.threat == "") {
			t.Errorf("%s: silent %v, cuts %v: %q", name, silent, cuts, threat)
		}
	}
}
