package histories_test

import (
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/history"
	"github.com/reeveproject/reeve/e2e/internal/partition"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// fault is what happens to the cluster in the middle of a run.
type fault struct {
	name string
	// strike has it happen, and returns when it has; what it returns takes it back.
	strike func(t *testing.T, s *scene, h *history.History) (heal func())
	// failOver says that one curator at most is away at any moment, and the store is not: who fails over reads without an error.
	failOver bool
}

// kills are the faults that need nothing but SIGKILL.
func kills() []fault {
	return []fault{
		{name: "curators killed in turn", failOver: true, strike: func(t *testing.T, s *scene, h *history.History) func() {
			for _, node := range s.nodes {
				s.killCurator(t, node)
				s.writes(t, h, inTurn)
			}
			return func() {}
		}},
		{name: "node of the store's leader killed", strike: func(t *testing.T, s *scene, h *history.History) func() {
			s.killNode(t, s.leader(t))
			s.writes(t, h, enough)
			return func() { s.cluster.MustReeve(t, "dev", "up", "--detach") }
		}},
		{name: "store's leader killed", strike: func(t *testing.T, s *scene, h *history.History) func() {
			replaced := s.killMember(t, s.leader(t))
			s.writes(t, h, enough)
			return replaced
		}},
	}
}

// cuts are the faults that cut the network of the scene.
func cuts() []fault {
	// cut has the leader of the store or a follower cut off, until that one has felt it and the others have gone on.
	cut := func(name string, how func(t *testing.T, network *partition.Network, leader, follower *node) (off *node)) fault {
		return fault{name: name, strike: func(t *testing.T, s *scene, h *history.History) func() {
			leader := s.leader(t)
			led, _ := leader.status.Get()
			off := how(t, s.network, leader, s.followers(leader)[0])
			// A cut that nobody feels is none.
			off.await(t, "has felt that it is cut off", func(status *nodev1.Status) bool {
				store := status.GetStore()
				return !store.GetQuorum() || store.GetLeaderId() != led.GetStore().GetMemberId()
			})
			s.writes(t, h, enough)
			return func() { s.network.Heal(t) }
		}}
	}
	return []fault{
		cut("leader isolated", func(t *testing.T, network *partition.Network, leader, _ *node) *node {
			network.Isolate(t, leader.number)
			return leader
		}),
		cut("pair cut", func(t *testing.T, network *partition.Network, leader, follower *node) *node {
			network.Cut(t, leader.number, follower.number)
			return follower
		}),
		cut("one way cut, from the leader", func(t *testing.T, network *partition.Network, leader, follower *node) *node {
			network.CutOneWay(t, leader.number, follower.number)
			return follower
		}),
		cut("one way cut, to the leader", func(t *testing.T, network *partition.Network, leader, follower *node) *node {
			network.CutOneWay(t, follower.number, leader.number)
			return follower
		}),
	}
}
