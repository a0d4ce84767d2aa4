package await_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/await"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestUp(t *testing.T) {
	in := func(state hostv1.MembershipState, store *consensusv1.StoreStatus, states ...hostv1.InstanceState) *nodev1.Status {
		status := &nodev1.Status{Membership: &hostv1.Membership{State: state, Reason: "why"}, Store: store, Node: &clusterv1.NodeStatus{}}
		for i, state := range states {
			status.Node.Instances = append(status.Node.Instances, &clusterv1.InstanceStatus{
				Role: "role" + string(rune('a'+i)), State: state, Reason: "because", LastFailure: &clusterv1.Failure{Cause: "it fell"},
			})
		}
		return status
	}
	store := func(quorum bool, members int) *consensusv1.StoreStatus {
		return &consensusv1.StoreStatus{Formed: true, Quorum: quorum, Members: make([]*consensusv1.StoreMember, members), Problem: "those of x do not answer"}
	}
	const (
		home, split = hostv1.MembershipState_MEMBERSHIP_STATE_HOME, hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT
		ready       = hostv1.InstanceState_INSTANCE_STATE_READY
		degraded    = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	)
	locked := in(split, store(false, 3))
	locked.Storage = &clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_LOCKED}
	for name, test := range map[string]struct {
		status  *nodev1.Status
		outcome await.Outcome
		text    string
		others  bool
	}{
		"nothing is known":      {nil, await.Pending, "has not reported", false},
		"up":                    {in(home, nil, ready, hostv1.InstanceState_INSTANCE_STATE_DEGRADED), await.Done, "its roles are up", false},
		"no roles":              {in(home, nil), await.Done, "its roles are up", false},
		"a role starts":         {in(home, nil, ready, hostv1.InstanceState_INSTANCE_STATE_STARTING), await.Pending, "role roleb is Starting: because", false},
		"a role failed":         {in(home, nil, ready, hostv1.InstanceState_INSTANCE_STATE_FAILED), await.Refused, "role roleb is Failed: because", false},
		"no contact yet":        {in(split, nil, ready), await.Pending, "the node is Split: why", false},
		"a store that begins":   {in(split, store(false, 1), ready), await.Pending, "the node is Split: why", false},
		"the others are needed": {in(split, store(false, 3), ready), await.Doubtful, "no majority of its members: those of x do not answer", true},
		"a store that waits":    {in(split, &consensusv1.StoreStatus{Problem: "role rolea is Degraded: because"}, degraded), await.Doubtful, "role rolea is Degraded: because", true},
		"another one degraded":  {in(split, &consensusv1.StoreStatus{Problem: "role roleb is in Backoff: because"}, degraded), await.Pending, "the node is Split: why", false},
		"no store on the node":  {in(split, nil, degraded), await.Pending, "the node is Split: why", false},
		"a majority is there":   {in(split, store(true, 3), ready), await.Pending, "the node is Split: why", false},
		"locked":                {locked, await.Pending, "Locked", false},
		"removed":               {in(hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING, nil), await.Refused, "Disowning", false},
	} {
		up := await.NewUp("N")
		verdict := up.See(await.Seen{Status: test.status})
		if verdict.Outcome != test.outcome || !strings.Contains(verdict.Text, test.text) || (up.Others() != "") != test.others {
			t.Errorf("%s: %+v, others %q", name, verdict, up.Others())
		}
		if again := up.See(await.Seen{Status: test.status}); again.Outcome != await.Same {
			t.Errorf("%s: the same again is %+v", name, again)
		}
		if test.outcome == await.Refused && verdict.Next == "" || strings.Contains(name, "role") && test.outcome != await.Done && len(verdict.Details) == 0 {
			t.Errorf("%s: nothing is said of it: %+v", name, verdict)
		}
	}
}
