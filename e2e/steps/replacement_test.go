package steps_test

import (
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// replacement has the members of the second and the third node replaced in turn, until everybody was killed at every step of that.
func (s *stepping) replacement() {
	defer s.part("members that are replaced")()
	t, c := s.t, s.c
	s.consensus.add([]int{1, 2, 3}, around("note-removal", "remove-member", "finish-removal", "add-learner", "promote")...)
	s.consensus.add([]int{2, 3}, around("mark-replaced", "put-aside", "delete-member", "mark-joining", "write-peer-key", "write-peer-ca", "write-peer-certificate", "begin-log", "mark-complete")...)
	for cycle := 1; len(s.consensus.missing()) > 0; cycle++ {
		if cycle > 20 {
			s.none(s.consensus)
		}
		t.Logf("cycle %d: left are %v", cycle, s.consensus.missing())
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
