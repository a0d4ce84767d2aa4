package problem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	ready    = hostv1.InstanceState_INSTANCE_STATE_READY
	degraded = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	failed   = hostv1.InstanceState_INSTANCE_STATE_FAILED
	backoff  = hostv1.InstanceState_INSTANCE_STATE_BACKOFF
)

func role(name string, state hostv1.InstanceState, reason string) *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{Role: name, State: state, Reason: reason}
}

// TestOfNode holds what the cluster knows of a node against what it says is wrong with it.
func TestOfNode(t *testing.T) {
	up := &clusterv1.NodeRecord{State: clusterv1.NodeState_NODE_STATE_UP}
	ill := &clusterv1.NodeStatus{Problem: "an address is taken", Instances: []*clusterv1.InstanceStatus{
		role("a", ready, ""), role("b", degraded, "no light"), role("c", failed, "gone"), role("d", backoff, ""), role("e", hostv1.InstanceState_INSTANCE_STATE_STARTING, "soon"),
	}}
	for name, test := range map[string]struct {
		node *clusterv1.Node
		want []string
	}{
		"new":     {&clusterv1.Node{Record: &clusterv1.NodeRecord{State: clusterv1.NodeState_NODE_STATE_NEW}}, []string{"waits for `reeve node approve`"}},
		"removed": {&clusterv1.Node{Record: &clusterv1.NodeRecord{State: clusterv1.NodeState_NODE_STATE_DECOMMISSIONED}, Status: ill}, nil},
		"well":    {&clusterv1.Node{Record: up, Healthy: true, Store: &clusterv1.StoreMembership{MemberId: "1", Step: "its member is being removed"}}, nil},
		"ill": {&clusterv1.Node{Record: up, Healthy: true, Status: ill}, []string{
			"an address is taken", "role b is Degraded: no light", "role c is Failed: gone", "role d is in Backoff",
		}},
		"dead": {&clusterv1.Node{Record: up, Status: ill, Store: &clusterv1.StoreMembership{MemberId: "1", Silent: true}}, []string{
			"it sends no heartbeats: start the node, or see that it reaches a curator", "its member of the consensus store does not answer the store's leader",
		}},
		"damaged": {&clusterv1.Node{Record: up, Healthy: true, Store: &clusterv1.StoreMembership{MemberId: "1", Damage: "it holds other data than that of reeve-2"}}, []string{
			"its member of the consensus store is damaged: it holds other data than that of reeve-2",
		}},
		"cut": {&clusterv1.Node{Record: up, Healthy: true, Store: &clusterv1.StoreMembership{MemberId: "1", Unreached: []string{"reeve-2"}, Stuck: true, Step: "cannot be taken out"}}, []string{
			"its member of the consensus store does not reach that of reeve-2, which others reach", "cannot be taken out",
		}},
	} {
		if got := problem.OfNode(test.node); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestOfStatus names a problem of the store once, be it the store that says it or its role.
func TestOfStatus(t *testing.T) {
	said := strings.Repeat("no leader ", 100)
	node := &nodev1.Status{Store: &consensusv1.StoreStatus{Problem: said}, Node: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{role("consensus", degraded, said)}}}
	if got := problem.OfStatus(node); len(got) != 1 || !strings.HasPrefix(got[0], "role consensus is Degraded: no leader") {
		t.Errorf("%q", got)
	}
	node = &nodev1.Status{Store: &consensusv1.StoreStatus{Problem: "that of c does not answer"}}
	if got := problem.OfStatus(node); !slices.Equal(got, []string{"the consensus store: that of c does not answer"}) {
		t.Errorf("%q", got)
	}
	if got := problem.OfStatus(nil); got != nil {
		t.Errorf("of nothing %q", got)
	}
}

// TestOfStore has the store's status say why its role does not run.
func TestOfStore(t *testing.T) {
	store := &consensusv1.StoreStatus{}
	if got := problem.OfStore(store, role("consensus", failed, "its data is gone")); got.GetProblem() != "role consensus is Failed: its data is gone" || store.GetProblem() != "" {
		t.Errorf("%v, and what was given is %v", got, store)
	}
	if got := problem.OfStore(nil, role("consensus", failed, "")); got.GetProblem() != "role consensus is Failed" {
		t.Errorf("%v", got)
	}
	if got := problem.OfStore(store, role("consensus", ready, "")); got != store {
		t.Errorf("%v", got)
	}
	store = &consensusv1.StoreStatus{Problem: "full"}
	if got := problem.OfStore(store, role("consensus", degraded, "full")); got != store {
		t.Errorf("%v", got)
	}
}

// TestPlain has no words of the transport reach people.
func TestPlain(t *testing.T) {
	for want, err := range map[string]error{
		"there was no answer in time":                         status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL"),
		"the call was ended before there was an answer":       status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"),
		"the connection was lost before there was an answer":  status.Error(codes.Unavailable, "error reading from server: EOF"),
		"the store did not answer: context deadline exceeded": status.Error(codes.Unavailable, "the store did not answer: context deadline exceeded"),
		"no node is called so":                                status.Error(codes.NotFound, "no node is called so"),
		"not of an RPC":                                       errors.New("not of an RPC"),
		context.DeadlineExceeded.Error():                      context.DeadlineExceeded,
		"dial tcp [fd00::2]:7443: connect: refused":           status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp [fd00::2]:7443: connect: refused"`),
		"authentication handshake failed: EOF": fmt.Errorf("max retries exhausted: failed after 4 attempts: %w",
			status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: EOF"`)),
		"there was no connection in time": status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: context deadline exceeded"`),
		"there was no answer in the end":  fmt.Errorf("max retries exhausted: failed after 4 attempts: %w", status.Error(codes.Unavailable, "there was no answer in the end")),
	} {
		if got := problem.Plain(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
