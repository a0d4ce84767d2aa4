package partition_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// letsNotIn has a node take no new connections of one other, while those that stand go on. The cluster goes on as it was, and names the way that is closed, and no other.
func (s *scene) letsNotIn(t *testing.T) {
	asked := leader(t, s.Cluster)
	from, to := others(asked)[0], others(asked)[1]
	s.network.RefuseNew(t, from, to)
	want := fmt.Sprintf("the member of %s does not reach that of %s, which others reach", s.ids[from], s.ids[to])
	eventually.True(t, soon, "the store's leader names the way that is closed", func() (bool, string) {
		status := s.Reeve(t, "store", "status", s.ids[asked])
		if strings.Contains(status.Stdout, "do not reach each other") {
			t.Errorf("the other way is open: %s", status)
		}
		return strings.Contains(status.Stdout, want), status.String()
	})
	fleet.Await(t, s.Cluster, asked, soon, "the cluster names the way that is closed", func(nodes []fleet.Node) bool {
		return strings.Contains(fleet.ByID(nodes, s.ids[from]).Problem, "does not reach that of "+s.ids[to]) && !strings.Contains(fleet.ByID(nodes, s.ids[to]).Problem, "does not reach")
	})
	s.halfCut(t, [][2]int{{from, to}})
	s.wellAgain(t, asked)
}

// newMember has a member join that reaches the others, and that they do not reach: it does not vote. Nor does it while one of them still does not reach it.
func (s *scene) newMember(t *testing.T) {
	asked := leader(t, s.Cluster)
	joins, other := others(asked)[0], others(asked)[1]
	s.MustReeve(t, "node", "role", "remove", s.ids[joins], "curator") // which needs the store there
	s.MustReeve(t, "node", "role", "remove", s.ids[joins], "consensus")
	s.network.RefuseNew(t, asked, joins)
	s.network.RefuseNew(t, other, joins)
	s.MustReeve(t, "node", "role", "add", s.ids[joins], "consensus", "--wait=false")
	s.learns(t, asked, joins, "does not answer yet at")

	s.network.Admit(t, asked, joins)
	s.learns(t, asked, joins, "cannot vote before it answers the members of "+s.ids[other])

	s.network.Heal(t)
	fleet.Await(t, s.Cluster, asked, soon, "the new member votes", func(nodes []fleet.Node) bool {
		store := fleet.ByID(nodes, s.ids[joins]).Store
		return store != nil && store.MemberID != "" && !store.Learner
	})
	s.MustReeve(t, "node", "role", "add", s.ids[joins], "curator", "--wait=false")
	s.awaitWishes(t)
	s.wellAgain(t, asked)
}

// learns waits until the cluster says what a new member waits for. It must not have a vote.
func (s *scene) learns(t *testing.T, asked, number int, step string) {
	t.Helper()
	fleet.Await(t, s.Cluster, asked, soon, "a new member that waits: "+step, func(nodes []fleet.Node) bool {
		store := fleet.ByID(nodes, s.ids[number]).Store
		if store != nil && store.MemberID != "" && !store.Learner {
			t.Errorf("a member that others do not reach votes: %+v", store)
			return true
		}
		return store != nil && strings.Contains(store.Step, step)
	})
}

// wellAgain waits until no node has a problem.
func (s *scene) wellAgain(t *testing.T, asked int) {
	t.Helper()
	fleet.Await(t, s.Cluster, asked, soon, "no node with a problem", func(nodes []fleet.Node) bool {
		for _, id := range s.ids {
			if fleet.ByID(nodes, id).Problem != "" {
				return false
			}
		}
		return true
	})
}
