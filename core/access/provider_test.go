package access_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

type accessStates = access.States

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func statusIn(of roles.Instance, state hostv1.InstanceState) *clusterv1.InstanceStatus {
	changed := proto.CloneOf(of.Status)
	changed.State = state
	return changed
}

// withoutProcess is the instance as it is listed while no process runs for it.
func withoutProcess(of roles.Instance) roles.Instance {
	return roles.Instance{Status: statusIn(of, hostv1.InstanceState_INSTANCE_STATE_BACKOFF)}
}

// TestOpenOnlyAtNumber: what the store says of an older set, of another core's set or of another instance does not open anything.
func TestOpenOnlyAtNumber(t *testing.T) {
	n, s := newNode(t), newStore(t, func(s *store) { s.opens = false })
	provider, first, second := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("first.1"), user("second.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, first})
	n.run()
	one := s.awaitSet(t, first)
	n.instances.Set(roles.Instances{provider, first, second})
	two := s.awaitSet(t, first, second)
	if two.GetNumber() != one.GetNumber()+1 {
		t.Fatalf("after the number %d comes %d", one.GetNumber(), two.GetNumber())
	}
	open := consensusv1.AccessState_ACCESS_STATE_OPEN

	foreign := reportOf(two, open, "")
	foreign.CoreStart--
	s.status.Set(foreign)
	n.awaitStore(foreign)
	n.mustBe(first, "WAITING")
	n.mustBe(second, "WAITING")

	// The first has been in both sets as it is: a report of the first set is enough for it.
	early := reportOf(two, open, "")
	early.AccessNumber = one.GetNumber()
	s.status.Set(early)
	n.awaitReason(first, "open")
	n.mustBe(second, "WAITING")

	s.status.Set(reportOf(two, consensusv1.AccessState_ACCESS_STATE_WAITING, "user is being made"))
	states := n.awaitReason(first, "WAITING")
	if message := states[first.Remit.InstanceID].GetUnavailable().GetMessage(); !containsAll(message, "first", "user is being made") {
		t.Errorf("the message does not pass the store's reason on: %q", message)
	}
	s.status.Set(reportOf(two, open, ""))
	n.awaitReason(first, "open")
	n.awaitReason(second, "open")
	s.status.Set(reportOf(two, consensusv1.AccessState_ACCESS_STATE_FAILED, "no room for the socket"))
	states = n.awaitReason(second, "WAITING")
	if message := states[second.Remit.InstanceID].GetUnavailable().GetMessage(); !containsAll(message, "no room for the socket") {
		t.Errorf("the message does not pass the store's reason on: %q", message)
	}
	s.status.Set(reportOf(one, open, ""))
	n.awaitReason(first, "open")
	n.mustBe(second, "WAITING")

	// An instance that left the set and came back is a new entry.
	n.membership.Set(membership.Status{State: membership.Split})
	s.awaitSet(t)
	n.membership.Set(home())
	four := s.awaitSet(t, first, second)
	s.status.Set(reportOf(two, open, ""))
	n.awaitStore(reportOf(two, open, ""))
	n.mustBe(first, "WAITING")
	s.status.Set(reportOf(four, open, ""))
	n.awaitReason(first, "open")
}

func (n *node) mustBe(of roles.Instance, want string) {
	n.t.Helper()
	states, _ := n.room.States().Get()
	if got := reasonOf(states, of); got != want {
		n.t.Errorf("%s is %s, and should be %s: %v", of.Remit.Name, got, want, states[of.Remit.InstanceID])
	}
}

// awaitStore waits until the room has published a status of the store; the states that belong to it are published before.
func (n *node) awaitStore(want *consensusv1.StoreStatus) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	last, err := n.room.Store().Wait(ctx, func(status *consensusv1.StoreStatus) bool { return proto.Equal(status, want) })
	if err != nil {
		n.t.Fatalf("the status of the store was never %v, last it is %v", want, last)
	}
}

// TestRefusedSetIsSentAgain: a provider may refuse as long as it is not formed, and gets the newest set when it no longer does.
func TestRefusedSetIsSentAgain(t *testing.T) {
	var refusals atomic.Int32
	n, s := newNode(t), newStore(t, func(s *store) {
		s.status = event.New(&consensusv1.StoreStatus{})
		s.refuse = func() error {
			if refusals.Add(1) <= 4 {
				return status.Error(codes.FailedPrecondition, "not formed")
			}
			return nil
		}
	})
	provider, role := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("role.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, role})
	n.run()
	s.awaitSet(t, role)
	n.awaitReason(role, "open")
	if got := refusals.Load(); got < 5 {
		t.Errorf("%d calls for four refusals", got)
	}
}

// TestNewProviderIsGivenTheSet: every new instance of the provider, and every new connection, is given the set, the present one and no
// other; in between the roles wait.
func TestNewProviderIsGivenTheSet(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider, role, other := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("role.1"), user("other.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, role, other})
	n.run()
	n.awaitReason(role, "open")
	request := s.awaitSet(t, other, role)

	// The provider ends and is waited for; meanwhile an instance ends too. The room reads one value after the other, so the first must have been seen
	// before the second is set: until then the provider rightly follows.
	n.capabilities.Set(roles.Capabilities{})
	n.awaitReason(role, "WAITING")
	n.instances.Set(roles.Instances{withoutProcess(provider), role})
	n.awaitReason(role, "WAITING")
	n.awaitStore(&consensusv1.StoreStatus{})

	again := newStore(t, nil)
	second := n.provide("consensus.2", uint32(os.Geteuid()), again.conn)
	n.instances.Set(roles.Instances{second, role})
	n.awaitReason(role, "open")
	taken, _ := again.taken.Get()
	if got := taken[0]; got.GetNumber() <= request.GetNumber() || len(got.GetInstances()) != 1 || got.GetInstances()[0].GetInstanceId() != role.Remit.InstanceID {
		t.Errorf("the first set of the new provider is %v, after %v", got, request)
	}

	// The same instance on another connection.
	third := newStore(t, nil)
	n.provide("consensus.2", uint32(os.Geteuid()), third.conn)
	third.awaitSet(t, role)
	n.awaitReason(role, "open")
	// The first provider may have been given its set again, if it stated its status before it took it, but never the set of its successors.
	before, _ := s.taken.Get()
	for _, got := range before {
		if len(got.GetInstances()) != 2 {
			t.Errorf("the first provider was given %v", got)
		}
	}
}

// TestForgottenSetIsSentAgain: a provider that is back behind the same connection and has forgotten the set is given it again.
func TestForgottenSetIsSentAgain(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider, role := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("role.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, role})
	n.run()
	n.awaitReason(role, "open")
	s.forget(t)
	taken, err := s.taken.Wait(t.Context(), func(taken []*consensusv1.SetAccessRequest) bool { return len(taken) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{role.Remit.InstanceID}, idsOf(taken[0])); diff != "" {
		t.Error(diff)
	}
	n.awaitReason(role, "open")
}

// TestNoLocalConsensus: a node without the role says so; a provider that is only away does not count as none.
func TestNoLocalConsensus(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	role := user("role.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{role})
	n.run()
	n.awaitReason(role, "NO_LOCAL_CONSENSUS")
	provider := n.provide("consensus.1", uint32(os.Geteuid()), s.conn)
	n.instances.Set(roles.Instances{provider, role})
	n.awaitReason(role, "open")
	n.capabilities.Set(roles.Capabilities{})
	n.instances.Set(roles.Instances{withoutProcess(provider), role})
	n.awaitReason(role, "WAITING")
	n.instances.Set(roles.Instances{role})
	states := n.awaitReason(role, "NO_LOCAL_CONSENSUS")
	if diff := cmp.Diff(1, len(states), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// forget makes the store forget every set and breaks its connections, as a process does that is replaced behind its socket.
func (s *store) forget(t *testing.T) {
	t.Helper()
	s.taken.Set(nil)
	s.status.Set(&consensusv1.StoreStatus{Formed: true})
	close(s.broken)
}
