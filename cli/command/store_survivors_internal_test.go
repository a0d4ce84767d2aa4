package command

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// startingNode is the own API of a node whose member reads its data for some calls still.
type startingNode struct {
	nodev1.NodeServiceClient
	calls, left int
	reached     bool
	roles       []string // that it runs
}

func (n *startingNode) GetStatus(context.Context, *nodev1.GetStatusRequest, ...grpc.CallOption) (*nodev1.GetStatusResponse, error) {
	running := &clusterv1.NodeStatus{}
	for _, role := range n.roles {
		running.Instances = append(running.Instances, &clusterv1.InstanceStatus{Role: role})
	}
	return &nodev1.GetStatusResponse{Status: &nodev1.Status{Node: running}}, nil
}

func (n *startingNode) GetStoreMember(_ context.Context, _ *nodev1.GetStoreMemberRequest, options ...grpc.CallOption) (*nodev1.GetStoreMemberResponse, error) {
	n.calls++
	for _, option := range options {
		if from, ok := option.(grpc.PeerCallOption); ok && n.reached {
			from.PeerAddr.Addr = &net.UnixAddr{Name: "node.sock", Net: "unix"}
		}
	}
	if n.calls <= n.left {
		return nil, status.Error(codes.Unavailable, "the member has not read its data yet")
	}
	return &nodev1.GetStoreMemberResponse{Member: &consensusv1.MemberState{Voter: true}}, nil
}

// TestAskWaitsForAStartingMember: a survivor that is only starting is not passed over, one that is not reached or has no member is not waited for, and one that never starts says why.
func TestAskWaitsForAStartingMember(t *testing.T) {
	for name, test := range map[string]struct {
		node         startingNode
		voter, waits bool
	}{
		"it runs":           {node: startingNode{reached: true}, voter: true},
		"it starts":         {node: startingNode{reached: true, left: 3}, voter: true, waits: true},
		"its role starts":   {node: startingNode{reached: true, left: 3, roles: []string{"hostsfile", "consensus"}}, voter: true, waits: true},
		"it never starts":   {node: startingNode{reached: true, left: 1 << 30}, waits: true},
		"it has no member":  {node: startingNode{reached: true, left: 1 << 30, roles: []string{"hostsfile"}}},
		"it is not reached": {node: startingNode{left: 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() // of the bubble
				r := &quorumRecovery{}
				r.ask(t.Context(), []target.Own{{Node: target.Node{ID: "reeve-1"}, API: &test.node}})
				s := r.survivors[0]
				if s.state.GetVoter() != test.voter || (s.err == nil) != test.voter || time.Since(began) > 0 != test.waits {
					t.Errorf("after %s: %v, %v", time.Since(began), s.state, s.err)
				}
				if !test.voter && status.Code(s.err) != codes.Unavailable {
					t.Errorf("it does not say why: %v", s.err)
				}
			})
		})
	}
}
