package access_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestSetByMembership holds the whole of who may be open in which membership state.
func TestSetByMembership(t *testing.T) {
	plain := user("plain.1")
	stops := instance("stops.1", &rolev1.RoleManifest{ConsensusUser: "stops", InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP}, "stops")
	curator := instance("curator.1", &rolev1.RoleManifest{ConsensusUser: "curator", Provides: []string{roles.CapabilityCluster}}, "curator")
	cached := instance("cached.1", &rolev1.RoleManifest{ConsensusUser: "cached", StartsFromCache: true}, "cached")
	continues := instance("continues.1", &rolev1.RoleManifest{ConsensusUser: "continues", InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE}, "continues")
	ungranted := instance("ungranted.1", &rolev1.RoleManifest{ConsensusUser: "ungranted", StartsFromCache: true, Provides: []string{roles.CapabilityCluster}}, "")
	otherwise := instance("otherwise.1", &rolev1.RoleManifest{ConsensusUser: "otherwise"}, "plain")
	without := instance("without.1", &rolev1.RoleManifest{}, "plain")
	members := []roles.Instance{plain, stops, curator, cached, continues}

	for name, test := range inorder.Of(map[string]struct {
		status *membership.Status
		open   []roles.Instance
		reason string // of the granted ones that are not open
	}{
		"not set":       {nil, nil, "WAITING"},
		"Unknown":       {&membership.Status{State: membership.Unknown}, nil, "NOT_MEMBER"},
		"Bootstrapping": {&membership.Status{State: membership.Bootstrapping}, []roles.Instance{curator}, "NOT_MEMBER"},
		"Foreign":       {&membership.Status{State: membership.Foreign}, nil, "NOT_MEMBER"},
		"Trusted":       {&membership.Status{State: membership.Trusted}, nil, "NOT_MEMBER"},
		"Home":          {&membership.Status{State: membership.Home}, members, "NOT_MEMBER"},
		"Split":         {&membership.Status{State: membership.Split, Reason: "no contact"}, []roles.Instance{cached, continues}, "NOT_MEMBER"},
		"Disowning":     {&membership.Status{State: membership.Disowning}, nil, "NOT_MEMBER"},
	}) {
		t.Run(name, func(t *testing.T) {
			n, s := newNode(t), newStore(t, nil)
			provider := n.provide("consensus.1", uint32(os.Geteuid()), s.conn)
			if test.status != nil {
				n.membership.Set(*test.status)
			}
			n.instances.Set(append(roles.Instances{provider, ungranted, otherwise, without}, members...))
			n.run()
			if test.status != nil && test.status.State != membership.Unknown {
				s.awaitSet(t, test.open...)
			}
			want := map[string]string{ungranted.Remit.InstanceID: "NOT_GRANTED", otherwise.Remit.InstanceID: "NOT_GRANTED"}
			for _, instance := range members {
				want[instance.Remit.InstanceID] = test.reason
			}
			for _, instance := range test.open {
				want[instance.Remit.InstanceID] = "open"
			}
			n.await(name, func(states accessStates) bool {
				got := make(map[string]string)
				for _, instance := range append([]roles.Instance{ungranted, otherwise, without, provider}, members...) {
					if reason := reasonOf(states, instance); reason != "" {
						got[instance.Remit.InstanceID] = reason
					}
				}
				return maps.Equal(got, want) && len(states) == len(want)
			})
		})
	}
}

// TestSetFollowsMembership goes through the states that a node goes through.
func TestSetFollowsMembership(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider := n.provide("consensus.1", uint32(os.Geteuid()), s.conn)
	plain, cached := user("plain.1"), instance("cached.1", &rolev1.RoleManifest{ConsensusUser: "cached", StartsFromCache: true}, "cached")
	n.instances.Set(roles.Instances{cached, plain, provider})
	n.membership.Set(membership.Status{State: membership.Split})
	n.run()
	s.awaitSet(t, cached)
	n.membership.Set(home())
	s.awaitSet(t, cached, plain)
	n.awaitReason(plain, "open")
	n.membership.Set(membership.Status{State: membership.Split, Reason: "heartbeat failed"})
	s.awaitSet(t, cached)
	states := n.awaitReason(plain, "NOT_MEMBER")
	if message := states[plain.Remit.InstanceID].GetUnavailable().GetMessage(); !containsAll(message, "Split", "heartbeat failed") {
		t.Errorf("the message does not say why: %q", message)
	}
	n.membership.Set(membership.Status{State: membership.Disowning})
	s.awaitSet(t)
	n.awaitReason(cached, "NOT_MEMBER")
}

// TestSetEntry looks at everything that is said of an instance.
func TestSetEntry(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider := n.provide("consensus.1", uint32(os.Geteuid()), s.conn)
	own := instance("own.1", &rolev1.RoleManifest{ConsensusUser: "own-user"}, "own-user")
	own.Remit.SharedUID = os.Geteuid() != 0
	cached := instance("cached.22", &rolev1.RoleManifest{ConsensusUser: "cached", StartsFromCache: true}, "cached")
	cached.Remit.SharedUID = true
	cached.Process = &plugin.Process{PID: 4711, Start: 815}
	n.membership.Set(home())
	n.instances.Set(roles.Instances{cached, provider, own})
	n.run()
	request := s.awaitSet(t, cached, own)
	want := &consensusv1.SetAccessRequest{CoreStart: coreStart.UnixNano(), Number: 1, Instances: []*consensusv1.AccessInstance{
		{
			InstanceId: cached.Remit.InstanceID, ConsensusUser: "cached", Socket: n.socket(cached), Uid: cached.Remit.UID,
			ProcessGroup: 4711, ProcessGroupStart: 815, WithoutQuorum: true,
		},
		{InstanceId: own.Remit.InstanceID, ConsensusUser: "own-user", Socket: n.socket(own), Uid: own.Remit.UID},
	}}
	if own.Remit.SharedUID {
		want.Instances[1].ProcessGroup, want.Instances[1].ProcessGroupStart = int64(own.Process.PID), own.Process.Start
	}
	if diff := cmp.Diff(want, request, protocmp.Transform()); diff != "" {
		t.Errorf("the set differs (-want +got):\n%s", diff)
	}
	states := n.awaitReason(own, "open")
	open := &hostv1.ConsensusOpen{Socket: n.socket(own), ConsensusUser: "own-user", Prefix: "/reeve/users/own-user/"}
	if diff := cmp.Diff(open, states[own.Remit.InstanceID].GetOpen(), protocmp.Transform()); diff != "" {
		t.Errorf("the answer differs (-want +got):\n%s", diff)
	}

	// A process that shares the user ID and is not known could be any: the instance is not in the set.
	cached.Process = nil
	n.instances.Set(roles.Instances{cached, provider, own})
	s.awaitSet(t, own)
	n.awaitReason(cached, "WAITING")
	// Another process is another entry, and not open before the store has taken it.
	cached.Process = &plugin.Process{PID: 4711, Start: 816}
	n.instances.Set(roles.Instances{cached, provider, own})
	if request := s.awaitSet(t, cached, own); request.GetNumber() != 3 || request.GetInstances()[0].GetProcessGroupStart() != 816 {
		t.Errorf("set %d has the process start %d", request.GetNumber(), request.GetInstances()[0].GetProcessGroupStart())
	}
	n.awaitReason(cached, "open")
}

// TestStoppingKeepsAccess: an instance that is being stopped has access until its process is gone.
func TestStoppingKeepsAccess(t *testing.T) {
	n, s := newNode(t), newStore(t, nil)
	provider, leaving := n.provide("consensus.1", uint32(os.Geteuid()), s.conn), user("leaving.1")
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, leaving})
	n.run()
	n.awaitReason(leaving, "open")
	stopping := leaving
	stopping.Status = statusIn(leaving, hostv1.InstanceState_INSTANCE_STATE_STOPPING)
	n.instances.Set(roles.Instances{provider, stopping, user("other.1")})
	n.awaitReason(user("other.1"), "open")
	if states, _ := n.room.States().Get(); reasonOf(states, leaving) != "open" {
		t.Errorf("while it is being stopped it is %s", reasonOf(states, leaving))
	}
	n.instances.Set(roles.Instances{provider})
	s.awaitSet(t)
	n.await("no answer", func(states accessStates) bool { return len(states) == 0 })
	mustNotExist(t, n.socket(leaving))
}

// TestNothingBeforeInstances: a core that has just started says nothing to the store before it knows its instances, and then also that there
// are none.
func TestNothingBeforeInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, conn := newNode(t), &silentConn{}
		provider := n.provide("consensus.1", uint32(os.Geteuid()), conn)
		n.membership.Set(home())
		stop := n.run()
		defer stop()
		synctest.Wait()
		if _, ok := n.room.States().Get(); ok {
			t.Error("states were published before the instances were known")
		}
		if calls := conn.calls(); len(calls) > 0 {
			t.Errorf("the store was called before the instances were known: %v", calls)
		}
		n.instances.Set(roles.Instances{provider})
		synctest.Wait()
		want := &consensusv1.SetAccessRequest{CoreStart: coreStart.UnixNano(), Number: 1}
		if diff := cmp.Diff([]*consensusv1.SetAccessRequest{want}, conn.calls(), protocmp.Transform()); diff != "" {
			t.Errorf("with no instance there should be one empty set (-want +got):\n%s", diff)
		}
		if states, ok := n.room.States().Get(); !ok || len(states) > 0 {
			t.Errorf("with no instance the states are %v (%v)", states, ok)
		}
	})
}

// TestHangingProvider: a provider that does not answer is asked again, and does not keep the room from ending.
func TestHangingProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, conn := newNode(t), &silentConn{hangs: true}
		provider := n.provide("consensus.1", uint32(os.Geteuid()), conn)
		n.membership.Set(home())
		n.instances.Set(roles.Instances{provider})
		stop := n.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls := len(conn.calls()); calls < 5 || calls > 7 {
			t.Errorf("a provider that hangs was asked %d times in a minute", calls)
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > 0 {
			t.Errorf("the room took %v to end", took)
		}
	})
}

// silentConn is a connection to a provider that takes every set, or none, and reports nothing.
type silentConn struct {
	hangs bool
	mu    sync.Mutex
	sets  []*consensusv1.SetAccessRequest
}

func (c *silentConn) calls() []*consensusv1.SetAccessRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sets)
}

func (c *silentConn) Invoke(ctx context.Context, _ string, request, _ any, _ ...grpc.CallOption) error {
	c.mu.Lock()
	c.sets = append(c.sets, request.(*consensusv1.SetAccessRequest))
	c.mu.Unlock()
	if c.hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (c *silentConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSetEntryOfThePrivileged has a store with a user of its own, and a role with the core's, root: the store can enter the directory of the role's socket, and cannot see the role's
// process, of which nothing is said.
func TestSetEntryOfThePrivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has other users")
	}
	n, s := newNode(t), newStore(t, nil)
	provider := n.provide("consensus.1", providerUID, s.conn)
	boss := instance("boss.1", &rolev1.RoleManifest{ConsensusUser: "boss"}, "boss")
	boss.Remit.SharedUID, boss.Remit.UID, boss.Remit.GID = true, 0, 0
	boss.Process = &plugin.Process{PID: 4711, Start: 815}
	n.membership.Set(home())
	n.instances.Set(roles.Instances{provider, boss})
	n.run()
	if entry := s.awaitSet(t, boss).GetInstances()[0]; entry.GetUid() != 0 || entry.GetProcessGroup() != 0 {
		t.Errorf("the set has %v", entry)
	}
	n.awaitReason(boss, "open")
	if got, want := modeAndOwner(t, filepath.Dir(n.socket(boss))), fmt.Sprintf("42710 %d:0", providerUID); got != want {
		t.Errorf("the directory is %s, and should be %s", got, want)
	}
}
