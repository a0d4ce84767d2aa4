package enrolment

import (
	"context"
	"crypto/ed25519"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Join implements clusterv1.EnrolmentServiceServer.
func (s *Service) Join(ctx context.Context, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error) {
	c, err := s.from(ctx, func(snapshot *cache.Snapshot, key ed25519.PublicKey) bool {
		return stands(rules.JoinKeyHolder(snapshot.State, key))
	})
	if err != nil {
		return nil, err
	}
	done, err := s.lookUp(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer done()
	// All records: which node a join key is of is not told by the key, and the cache may not have heard of the node yet.
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	node := rules.JoinKeyHolder(state, c.key)
	if node == nil {
		return nil, s.failed(c, answer.Errorf(codes.NotFound, "cluster %s has no node with this join key: check that the node is of this cluster",
			state.Cluster.GetClusterId()))
	}
	if !stands(node) {
		return nil, s.failed(c, answer.Removed(node, state.Generation))
	}
	s.recognised(ctx, node.GetId())
	if err := answer.Invalid(incarnation(request.GetIncarnation())); err != nil {
		return nil, err
	}
	if err := mayJoin(state, node); err != nil {
		return nil, err
	}
	starts, err := s.config.Store.ReadNode(ctx, node.GetId())
	if err != nil {
		return nil, err
	}
	if _, _, err := s.config.Starts.Admit(ctx, starts, node.GetId(), request.GetIncarnation()); err != nil {
		return nil, err
	}
	cuk, err := s.config.Store.ReadCUK(ctx, node.GetId())
	if err != nil {
		return nil, err
	}
	if len(cuk) == 0 {
		return nil, answer.Errorf(codes.NotFound, "the cluster does not have its half of the key of the volume of node %s: use the recovery key (`reeve node unlock`)",
			node.GetId())
	}
	s.config.Log.Info("a node was given the cluster's half of the key of its volume", "node", node.GetId(), "address", address(ctx))
	return &clusterv1.JoinResponse{Cuk: cuk, CaCertificates: state.CA}, nil
}

// mayJoin returns why a node is not given its key.
func mayJoin(state *store.State, node *clusterv1.NodeRecord) error {
	switch id := node.GetId(); node.GetState() {
	case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
	default:
		return answer.Errorf(codes.NotFound, "node %s is no member yet, and the cluster does not have its half of the key of its volume", id)
	}
	if policy := state.Demands(); !rules.AllowsCUK(policy, rules.CUKCluster) {
		return answer.Errorf(codes.PermissionDenied, "the cluster's policy does not allow the source %q for the key of the volume of node %s, only %s: "+
			"use one of those, or have the owner change it (`reeve policy set`)", rules.CUKCluster, node.GetId(), strings.Join(policy.GetCukSources(), ", "))
	}
	return nil
}
