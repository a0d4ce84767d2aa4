package report

import (
	"context"
	"crypto/ed25519"
	"testing"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// A report that says nothing new is not published again.
func TestPublish(t *testing.T) {
	var r Room
	reports := r.Node.Watch()
	first := r.publish(&clusterv1.NodeStatus{NodeId: "n"})
	if now, _ := reports.Latest(); now != first || first.GetReported() == nil {
		t.Errorf("published %v, returned %v", now, first)
	}
	if again := r.publish(&clusterv1.NodeStatus{NodeId: "n"}); again != first {
		t.Errorf("returned %v for the same report", again)
	}
	select {
	case <-reports.Changed():
		t.Error("the same report was published again")
	default:
	}
	if second := r.publish(&clusterv1.NodeStatus{NodeId: "n", Problem: "p"}); second == first || second.GetReported() == nil {
		t.Errorf("returned %v for another report", second)
	}
}

// What degrades the node is in its status and in the report to the cluster, that of the disk first, for as long as it lasts.
func TestProblems(t *testing.T) {
	var api, metrics, disk, network event.Value[string]
	var r Room
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx, Sources{
			APIAddress: new(event.Value[string]), Addresses: new(event.Value[[]string]), Instances: new(event.Value[roles.Instances]), Membership: new(event.Value[membership.Status]),
			Identity: event.New(&identity.Identity{Key: make(ed25519.PrivateKey, ed25519.PrivateKeySize)}), Curators: new(event.Value[[]string]), LocalCurator: new(event.Value[string]), View: new(event.Value[*cluster.View]),
			Store: new(event.Value[*consensusv1.StoreStatus]), Storage: new(event.Value[*clusterv1.StorageStatus]), APIProblem: &api, MetricsProblem: &metrics, DiskProblem: &disk, NetworkProblem: &network,
		})
	}()
	for _, step := range []struct {
		of         *event.Value[string]
		says, want string
	}{
		{&metrics, "metrics", "metrics"}, {&disk, "disk", "disk; metrics"}, {&api, "api", "disk; api; metrics"}, {&network, "network", "disk; network; api; metrics"},
		{&metrics, "", "disk; network; api"}, {&disk, "", "network; api"}, {&api, "", "network"}, {&network, "", ""},
	} {
		step.of.Set(step.says)
		if _, err := r.Status.Wait(t.Context(), func(now *nodev1.Status) bool { return now.GetNode() != nil && now.GetNode().GetProblem() == step.want }); err != nil {
			now, _ := r.Status.Get()
			t.Fatalf("%q is not %q: %v", now.GetNode().GetProblem(), step.want, err)
		}
		if report, _ := r.Node.Get(); report.GetProblem() != step.want {
			t.Errorf("the cluster is told %q, want %q", report.GetProblem(), step.want)
		}
	}
	cancel()
	<-ended
}

// Roles hear of operators once the cluster has named them, if only that there are none, and again when something of them changes.
func TestPublishView(t *testing.T) {
	var r Room
	r.publishView(nil, nil)
	if _, told := r.HostOperators.Get(); told {
		t.Error("roles were told before the cluster said anything")
	}
	r.publishView(&cluster.View{}, nil)
	if _, told := r.Operators.Get(); !told {
		t.Error("the API was not told that there are no operators")
	}
	operators := r.HostOperators.Watch()
	if now, told := operators.Latest(); !told || now.GetOwnerKeyId() != "" {
		t.Errorf("roles were told %v", now)
	}
	view := &cluster.View{
		Directory: &hostv1.Directory{}, Operators: []*clusterv1.Operator{{Name: "alice", Id: "1", Role: clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER}},
	}
	r.publishView(view, make([]byte, 32))
	now, _ := operators.Latest()
	if now.GetOwnerKeyId() == "" || len(now.GetOperators()) != 1 || now.GetOperators()[0].GetRole() != hostv1.OperatorRole_OPERATOR_ROLE_VIEWER {
		t.Errorf("roles were told %v", now)
	}
	if directory, _ := r.Directory.Get(); directory != view.Directory {
		t.Errorf("the directory is %v", directory)
	}
	r.publishView(view, make([]byte, 32))
	select {
	case <-operators.Changed():
		t.Error("roles were told the same again")
	default:
	}
}

func TestReached(t *testing.T) {
	addresses := []string{"fd00::1", "10.0.0.1"}
	for listening, want := range map[string]string{
		"": "", "127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:1": "10.0.0.1:1", "[::]:1": "[fd00::1]:1", "name:1": "name:1",
	} {
		if got := reached(listening, addresses); got != want {
			t.Errorf("%q: got %q, want %q", listening, got, want)
		}
	}
}

// The store's status says why the role that provides it does not run, and only of that role.
func TestStoreOf(t *testing.T) {
	failed := &clusterv1.InstanceStatus{Role: "consensus", State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "its data is gone"}
	store := new(consensusv1.StoreStatus)
	if got := storeOf(store, roles.Instances{{Status: failed}}); got != store {
		t.Errorf("of another role: %v", got)
	}
	if got := storeOf(store, roles.Instances{{Status: failed, Provides: []string{roles.CapabilityConsensus}}}); got.GetProblem() != "role consensus is Failed: its data is gone" {
		t.Errorf("%v", got)
	}
}

// A store counts as away while it is formed and has no majority.
func TestStoreAway(t *testing.T) {
	for want, store := range map[string]*consensusv1.StoreStatus{
		"": {Formed: true, Quorum: true}, "the consensus store has no majority: no leader": {Formed: true, Problem: "no leader"},
	} {
		if got := StoreAway(event.New(store)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := StoreAway(event.New(new(consensusv1.StoreStatus))); got != "" {
		t.Errorf("of a store that was not formed: %q", got)
	}
}
