package bootstrap

import (
	"bytes"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// requesterSize is how long the words of the core may be for who asked, in bytes.
const requesterSize = 256

// ReplaceOwner implements clusterv1.BootstrapServiceServer. The key and the entry in the audit log are written in one transaction. The owner key that the
// cluster has already is no error, so that the call can be repeated when its answer was lost.
func (s *Service) ReplaceOwner(ctx context.Context, request *clusterv1.ReplaceOwnerRequest) (*clusterv1.ReplaceOwnerResponse, error) {
	open, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	var waiting []string
	err = open.audit.Do(ctx, clusterv1.BootstrapService_ReplaceOwner_FullMethodName, request, func(ctx context.Context) error {
		waiting, err = replaceOwner(ctx, open.store, request)
		return answer.Error(err)
	})
	if err != nil {
		return nil, err
	}
	return &clusterv1.ReplaceOwnerResponse{WaitingNodes: waiting}, nil
}

// replaceOwner returns the machines that have registered with tickets of a former owner key and do not become members any more.
func replaceOwner(ctx context.Context, open Store, request *clusterv1.ReplaceOwnerRequest) (waiting []string, err error) {
	problems := rules.PublicKey("owner_public_key", request.GetOwnerPublicKey())
	if requester := request.GetRequester(); requester == "" || len(requester) > requesterSize || !limits.Line(requester) {
		problems = append(problems, rules.Problem{Field: "requester", Message: "it must say who asks, in one line"})
	}
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	_, err = open.Update(ctx, audit.CallOf(ctx), func(state *store.State) (*store.Change, error) {
		waiting = tickets.WaitingWithout(state, request.GetOwnerPublicKey())
		if bytes.Equal(state.Cluster.GetOwnerPublicKey(), request.GetOwnerPublicKey()) {
			return nil, nil
		}
		if holder := rules.KeyHolder(state, request.GetOwnerPublicKey()); holder != "" {
			return nil, answer.Errorf(codes.FailedPrecondition, "the key is %s: the owner needs a key of its own", holder)
		}
		replaced := proto.CloneOf(state.Cluster)
		replaced.OwnerPublicKey = request.GetOwnerPublicKey()
		return &store.Change{Cluster: replaced}, nil
	})
	return waiting, err
}
