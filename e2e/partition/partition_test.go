package partition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/partition"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// wishes are the roles of the plugin of that name, and what becomes of each in Split.
var wishes = map[string]string{"stopper": "stop", "goer": "continue", "listener": "told"}

// scene is a cluster whose nodes are cut off from each other.
type scene struct {
	*devcluster.Cluster
	network *partition.Network
	ids     map[int]string
}

// TestPartitions cuts the nodes of a cluster off from each other. The rest goes on; what has no quorum within its reach is Split and says so; and when all is healed
// everything is as it was.
func TestPartitions(t *testing.T) {
	t.Parallel()
	c := three(t)
	s := &scene{Cluster: c, network: partition.New(t, c), ids: make(map[int]string)}
	for number, status := range statuses(t, c) {
		s.ids[number] = status.Node.ID
	}
	s.addWishes(t)

	for _, pair := range [][2]int{{1, 2}, {1, 3}, {2, 3}} {
		t.Run(fmt.Sprintf("nodes %d and %d", pair[0], pair[1]), func(t *testing.T) {
			s.network.Cut(t, pair[0], pair[1])
			s.halfCut(t, [][2]int{{pair[0], pair[1]}, {pair[1], pair[0]}})
		})
	}
	t.Run("a pair that only the leader reaches", func(t *testing.T) {
		bridge := leader(t, c)
		pair := others(bridge)
		s.network.Cut(t, pair[0], pair[1])
		s.named(t, bridge, s.ids[pair[0]], s.ids[pair[1]])
		s.halfCut(t, [][2]int{{pair[0], pair[1]}, {pair[1], pair[0]}})
	})
	if soak.Enabled {
		t.Run("a pair of which one lets nobody in", s.letsNotIn)
		t.Run("a new member that lets nobody in", s.newMember)
	}
	t.Run("the leader is not heard by another", func(t *testing.T) {
		from := leader(t, c)
		to := others(from)[0]
		s.network.CutOneWay(t, from, to)
		s.halfCut(t, [][2]int{{from, to}})
	})
	t.Run("the leader does not hear another", func(t *testing.T) {
		to := leader(t, c)
		from := others(to)[0]
		s.network.CutOneWay(t, from, to)
		s.halfCut(t, [][2]int{{from, to}})
	})
	t.Run("the leader is cut off", func(t *testing.T) {
		s.cutOff(t, leader(t, c), func(number int) { s.network.Isolate(t, number) })
	})
	t.Run("the leader is heard by nobody", func(t *testing.T) {
		s.cutOff(t, leader(t, c), func(number int) {
			for _, other := range others(number) {
				s.network.CutOneWay(t, number, other)
			}
		})
	})
	t.Run("a node hears nobody", func(t *testing.T) {
		s.cutOff(t, others(leader(t, c))[0], func(number int) {
			for _, other := range others(number) {
				s.network.CutOneWay(t, other, number)
			}
		})
	})
}

// others are the numbers of the nodes other than one.
func others(number int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(other int) bool { return other == number })
}

// addWishes has every node run the roles that differ in what they want in Split.
func (s *scene) addWishes(t *testing.T) {
	t.Helper()
	plugin, err := roleplugin.Build(t.Context(), shared.Programs.Workspace, shared.Base, "wishes", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range s.ids {
		// Executables are not passed on from node to node.
		s.MustReeve(t, "plugin", "add", "--approve", plugin, "--node", id)
	}
	for _, id := range s.ids {
		for role := range wishes {
			s.MustReeve(t, "node", "role", "add", id, role, "--wait=false")
		}
	}
	s.awaitWishes(t)
}

func (s *scene) awaitWishes(t *testing.T) {
	t.Helper()
	await(t, s.Cluster, "every node Home, with all of its roles", func(seen map[int]devcluster.Status) bool {
		for _, number := range all {
			if status := seen[number]; !status.Up(append([]string{"stopper", "goer", "listener"}, devcluster.DefaultRoles...)...) {
				return false
			}
		}
		return true
	})
}

// halfCut is what holds while every node still has one other in its reach, and so a quorum: the cluster goes on, and nobody is Split.
func (s *scene) halfCut(t *testing.T, cut [][2]int) {
	t.Helper()
	before := marks(t, s.Cluster)
	for _, way := range cut {
		eventually.True(t, soon, fmt.Sprintf("what node %d sends does not arrive at node %d", way[0], way[1]), func() (bool, string) {
			return s.network.Dropped(t, way[0], way[1]) > 0, ""
		})
	}
	for _, number := range all {
		writes(t, s.Cluster, number, s.ids[number], strings.ReplaceAll(strings.ToLower(t.Name()), "/", "."))
	}
	// As long as a heartbeat is good for, and so until a node would know that it is cut off.
	s.network.Heal(t)
	s.awaitWishes(t)
	for _, number := range all {
		entered(t, s.Cluster, number, before)
	}
}

// named waits until the leader names two nodes whose members do not reach each other, and so does the list of nodes. The leader is then not to be taken out of the store.
func (s *scene) named(t *testing.T, bridge int, a, b string) {
	t.Helper()
	a, b = min(a, b), max(a, b)
	want := fmt.Sprintf("the members of %s and %s do not reach each other", a, b)
	eventually.True(t, soon, "the store's leader names the pair", func() (bool, string) {
		status := s.Reeve(t, "store", "status", s.ids[bridge])
		return strings.Contains(status.Stdout, want), status.String()
	})
	fleet.Await(t, s.Cluster, bridge, soon, "the cluster names the pair", func(nodes []fleet.Node) bool {
		return strings.Contains(fleet.ByID(nodes, a).Problem, "does not reach that of "+b) && strings.Contains(fleet.ByID(nodes, b).Problem, "does not reach that of "+a)
	})
	refused := s.Reeve(t, "node", "role", "remove", s.ids[bridge], "consensus", "--dry-run")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "do not reach each other") {
		t.Errorf("the leader, which alone reaches both, may be taken out: %s", refused)
	}
}

// cutOff is what holds while one node has no other in its reach.
func (s *scene) cutOff(t *testing.T, number int, cut func(number int)) {
	t.Helper()
	before, ran, began := marks(t, s.Cluster), s.pids(t, number), time.Now()
	cut(number)
	rest := others(number)
	value := fmt.Sprintf("without-%d", began.UnixNano())
	writes(t, s.Cluster, rest[0], s.ids[rest[1]], value)
	seen := await(t, s.Cluster, fmt.Sprintf("node %d is Split, and its roles are as they wish", number), func(seen map[int]devcluster.Status) bool {
		status := seen[number]
		return status.Membership.State == "Split" && status.Role("stopper").State == "Blocked" &&
			status.Role("listener").Values["membership"] == "MEMBERSHIP_STATE_SPLIT"
	})
	status := seen[number]
	if status.Membership.Reason == "" || status.Membership.Since.Before(began) || status.Membership.Since.After(time.Now()) {
		t.Errorf("node %d, which was cut off at %s, does not say why or since when it is Split: %q, since %s", number, began, status.Membership.Reason, status.Membership.Since)
	}
	for role, wish := range wishes {
		if got := status.Role(role).InSplit; got != wish {
			t.Errorf("the role %s is shown to be %q in Split, want %q", role, got, wish)
		}
	}
	for _, role := range []string{"goer", "listener"} {
		if now := status.Role(role); now.State != "Ready" || now.PID != ran[role] {
			t.Errorf("the role %s does not go on in Split: it was process %d, and is %s, process %d: %s", role, ran[role], now.State, now.PID, now.Reason)
		}
	}
	for _, other := range rest {
		if seen[other].Membership.State != "Home" {
			t.Errorf("node %d is %s: %s", other, seen[other].Membership.State, seen[other].Membership.Reason)
		}
	}
	fleet.Await(t, s.Cluster, rest[0], soon, "the cluster sees that the node is away", func(nodes []fleet.Node) bool {
		return !fleet.ByID(nodes, s.ids[number]).Healthy && fleet.ByID(nodes, s.ids[rest[0]]).Healthy && fleet.ByID(nodes, s.ids[rest[1]]).Healthy
	})
	writes(t, s.Cluster, rest[1], s.ids[rest[0]], value)

	s.network.Heal(t)
	s.awaitWishes(t)
	fleet.Await(t, s.Cluster, number, soon, "all nodes are well, and nothing is lost that was acknowledged", func(nodes []fleet.Node) bool {
		for _, id := range s.ids {
			if !fleet.ByID(nodes, id).Healthy {
				return false
			}
		}
		return fleet.ByID(nodes, s.ids[rest[0]]).Labels["written"] == value && fleet.ByID(nodes, s.ids[rest[1]]).Labels["written"] == value
	})
	entered(t, s.Cluster, number, before, "Split", "Home")
	for _, other := range rest {
		entered(t, s.Cluster, other, before)
	}
	if now := s.pids(t, number); now["goer"] != ran["goer"] || now["stopper"] == ran["stopper"] {
		t.Errorf("of the roles goer was to run on, and stopper to be started again: %v before, %v now", ran, now)
	}
}

// pids are the processes of the roles of a node.
func (s *scene) pids(t *testing.T, number int) map[string]int {
	t.Helper()
	return statuses(t, s.Cluster)[number].PIDs()
}
