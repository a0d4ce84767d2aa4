package steps_test

import (
	"slices"
	"strings"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// replacement has the members of the second and the third node replaced in turn, until everybody was killed at every step of that. The gate kills only where a replacement differs from a removal and a join, at each step of
// which it kills in members: at the curator's decision, at one step of the leader, and while the member that was removed gives its data up.
func (s *stepping) replacement() {
	defer s.part("members that are replaced")()
	t, c := s.t, s.c
	leader, member := []string{"remove-member"}, []string{"mark-replaced", "put-aside"}
	if soak.Enabled {
		leader = append(leader, "note-removal", "finish-removal", "add-learner", "promote")
		member = append(member, "delete-member", "mark-joining", "write-peer-key", "write-peer-ca", "write-peer-certificate", "begin-log", "mark-complete")
	}
	s.consensus.add([]int{1, 2, 3}, around(leader...)...)
	s.consensus.add([]int{2, 3}, around(member...)...)
	s.curator.add([]int{1, 2, 3}, around("replace-store-member")...)
	for cycle := 1; len(s.consensus.missing()) > 0 || slices.ContainsFunc(s.curator.missing(), func(point string) bool { return strings.HasSuffix(point, "replace-store-member") }); cycle++ {
		if cycle > 20 {
			s.none(s.consensus, s.curator)
		}
		t.Logf("cycle %d: left are %v and %v", cycle, s.consensus.missing(), s.curator.missing())
		node, former := fleet.ID(t, c, 2+cycle%2), ""
		s.insist("there is a member to replace", s.nodes(func(nodes []fleet.Node) bool {
			if s.three(nodes) {
				former = fleet.ByID(nodes, node).Store.MemberID
			}
			return former != ""
		}))
		eventually.True(t, manyKills, "its replacement is decided", func() (bool, string) {
			result := c.Reeve(t, "store", "replace", node, "--yes", "--wait=false")
			return result.Code == 0, result.String()
		})
		s.insist("another member votes in its place", s.nodes(func(nodes []fleet.Node) bool {
			return s.three(nodes) && fleet.ByID(nodes, node).Store.MemberID != former
		}))
	}
}
