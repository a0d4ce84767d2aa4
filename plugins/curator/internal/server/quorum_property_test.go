package server_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Whatever two curators decide at the same moment about members of the consensus store, and however slowly the store follows, it never gets to where its next
// step would cost the quorum, and there is always a node left that has it, and one that has a curator.
func TestTwoCuratorsKeepTheQuorum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := oneOfMany(t, etcd, nil)
		defer func() { _ = c.curator.stop() }()
		other := start(t, etcd, c.prefix, nil).ready()
		defer func() { _ = other.stop() }()
		clients := []clusterv1.ManagementServiceClient{c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(other, selfSigned(t, c.owner)))}
		ids := []string{c.id}
		for range rapid.IntRange(1, 4).Draw(rt, "more nodes") {
			ids = append(ids, c.nodeWith("store", "api"))
		}
		slices.Sort(ids)
		c.runs(ids...)
		c.tell(ids...)
		l := &leader{t: t, client: c.client()}
		dead := make(map[string]bool)
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			// The store always has its quorum.
			if id := rapid.SampledFrom(ids).Draw(rt, "dies"); rapid.Bool().Draw(rt, "one dies") && mayDie(c, id, dead) {
				dead[id] = true
				if err := l.tellHealth(t.Context(), dead); err != nil {
					rt.Fatal(err)
				}
			}
			var group sync.WaitGroup
			errs := make([]error, len(clients))
			for i, client := range clients {
				id, how := rapid.SampledFrom(ids).Draw(rt, "node"), rapid.IntRange(0, 4).Draw(rt, "how")
				group.Go(func() { errs[i] = demote(t.Context(), client, id, how) })
			}
			group.Wait()
			for _, err := range errs {
				if code := status.Code(err); code != codes.OK && code != codes.FailedPrecondition && code != codes.NotFound {
					rt.Fatal(err)
				}
			}
			state, desired := c.stored()
			for id, node := range state.Nodes {
				// One that was deleted wipes itself at once, however slowly the store follows.
				dead[id] = dead[id] || node.GetState() == stateDecommissioned
			}
			checkMembers(rt, state, desired, dead)
			for range rapid.IntRange(0, 3).Draw(rt, "steps") {
				if err := l.step(t.Context(), dead); err != nil {
					rt.Fatal(err)
				}
			}
			if len(l.lost) > 0 {
				rt.Fatalf("the store was to let %v go, and would have lost its quorum; dead are %v", l.lost, dead)
			}
		}
		// In the end the store gets to what was decided.
		for range 2 * len(ids) {
			if err := l.step(t.Context(), dead); err != nil {
				rt.Fatal(err)
			}
		}
		if len(l.lost) > 0 {
			rt.Fatalf("the store was to let %v go, and would have lost its quorum; dead are %v", l.lost, dead)
		}
	})
}

// demote changes what a node is, in one of the ways in which a member goes, or comes back.
func demote(ctx context.Context, client clusterv1.ManagementServiceClient, id string, how int) (err error) {
	switch how {
	case 0:
		_, err = client.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: id})
	case 1:
		_, err = client.SetRoles(ctx, &clusterv1.SetRolesRequest{NodeId: id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}}})
	case 2:
		_, err = client.DecommissionNode(ctx, &clusterv1.DecommissionNodeRequest{NodeId: id})
	case 3:
		_, err = client.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: id, Role: "api"})
	default:
		_, err = client.DeleteNode(ctx, &clusterv1.DeleteNodeRequest{NodeId: id, Force: true}) // they are all alive
	}
	return err
}

// mayDie reports whether a member may stop answering without that the store has no quorum, now or once it has got to what was decided: that decisions are made before a
// member dies is for the consensus role to see, which looks again at every step.
func mayDie(c *cluster, id string, dead map[string]bool) bool {
	state, desired := c.stored()
	count := func(of func(node string) bool) (all, answer int) {
		for _, member := range state.Store.GetMembers() {
			if node := member.GetNodeId(); of(node) {
				all++
				if node != id && !dead[node] {
					answer++
				}
			}
		}
		return all, answer
	}
	now, answerNow := count(func(string) bool { return true })
	then, answerThen := count(func(node string) bool { return slices.Contains(desired.GetMembers(), node) })
	return 2*answerNow > now && 2*answerThen > then
}

// checkMembers holds what was decided against what must always be so.
func checkMembers(t *rapid.T, state *store.State, desired *consensusv1.DesiredState, dead map[string]bool) {
	if len(desired.GetMembers()) == 0 {
		t.Fatal("the store is to have no member")
	}
	left, answer := 0, 0
	for _, id := range desired.GetMembers() {
		if state.StoreMember(id) == nil {
			continue // it comes
		}
		left++
		if !dead[id] {
			answer++
		}
	}
	if 2*answer <= left {
		t.Fatalf("of the members %v that stay, those that answer are no majority: dead are %v, the store has %v", desired.GetMembers(), dead, state.Store)
	}
	answer = 0
	for _, member := range state.Store.GetMembers() {
		if !dead[member.GetNodeId()] {
			answer++
		}
	}
	if 2*answer <= len(state.Store.GetMembers()) {
		t.Fatalf("of the members %v those that answer are no majority: dead are %v", state.Store.GetMembers(), dead)
	}
	curators := 0
	for _, node := range state.Nodes {
		for _, assignment := range node.GetRoles() {
			if assignment.GetRole() == "api" && node.GetState() == stateUp {
				curators++
			}
			if assignment.GetLeaving() && slices.Contains(desired.GetMembers(), node.GetId()) {
				t.Fatalf("node %s leaves, and is to stay", node.GetId())
			}
		}
		if node.GetState() == stateDecommissioned && len(node.GetRoles()) > 0 {
			t.Fatalf("%v", node)
		}
	}
	if curators == 0 {
		t.Fatal("there is no curator any more")
	}
}

// tellHealth writes which members answer, and does nothing else.
func (l *leader) tellHealth(ctx context.Context, dead map[string]bool) error {
	got, err := l.client.Get(ctx, consensusv1.StoreStateKey)
	if err != nil {
		return err
	}
	told := new(consensusv1.StoreState)
	if err := proto.Unmarshal(got.Kvs[0].Value, told); err != nil {
		return err
	}
	for _, member := range told.GetMembers() {
		member.Healthy = !dead[member.GetNodeId()]
	}
	value, err := proto.Marshal(told)
	if err != nil {
		return err
	}
	_, err = l.client.Put(ctx, consensusv1.StoreStateKey, string(value))
	return err
}
