package nodeapi

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/network"
	"github.com/reeveproject/reeve/core/roles"
	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// maxReason is how long the message of an error is that another room or a role gave, in bytes.
const maxReason = 4096

// GetRole implements the RPC.
func (s *service) GetRole(ctx context.Context, request *nodev1.GetRoleRequest) (*nodev1.GetRoleResponse, error) {
	if err := checkRole(request.GetRole()); err != nil {
		return nil, err
	}
	answer, err := s.config.Role(ctx, request.GetRole())
	if err != nil {
		return nil, roleFailure(err)
	}
	return answer, nil
}

// RestartRole implements the RPC.
func (s *service) RestartRole(ctx context.Context, request *nodev1.RestartRoleRequest) (*nodev1.RestartRoleResponse, error) {
	if err := checkRole(request.GetRole()); err != nil {
		return nil, err
	}
	stopped, err := s.config.Restart(ctx, request.GetRole(), request.GetDryRun())
	if err != nil {
		return nil, roleFailure(err)
	}
	return &nodev1.RestartRoleResponse{InstanceId: stopped}, nil
}

// DebugRole implements the RPC.
func (s *service) DebugRole(ctx context.Context, request *nodev1.DebugRoleRequest) (*nodev1.DebugRoleResponse, error) {
	if err := checkRole(request.GetRole()); err != nil {
		return nil, err
	}
	pid, stopped, err := s.config.Debug(ctx, request.GetRole(), request.GetSocket(), request.GetDryRun())
	if err != nil {
		return nil, roleFailure(err)
	}
	return &nodev1.DebugRoleResponse{Pid: int64(pid), InstanceId: stopped}, nil
}

// roleFailure is failure for a call about a role.
func roleFailure(err error) error {
	var unknown *roles.NotDesiredError
	if errors.As(err, &unknown) {
		return status.Error(codes.NotFound, reason(err)+": `reeve status` lists the roles of this node")
	}
	return failure(err)
}

// GetMetrics implements the RPC.
func (s *service) GetMetrics(ctx context.Context, _ *nodev1.GetMetricsRequest) (*nodev1.GetMetricsResponse, error) {
	done, err := s.scrapes.begin(callerOf(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	text, err := s.config.Metrics(ctx)
	if err != nil {
		return nil, failure(err)
	}
	// A client would refuse it with a message that says less.
	if room := limits.Message - 1024; len(text) > room {
		return nil, status.Errorf(codes.ResourceExhausted, "nodeapi: the metrics of this node have %d bytes, and an answer takes %d: a role tells too many", len(text), room)
	}
	return &nodev1.GetMetricsResponse{Text: text}, nil
}

// mostScrapes is how many calls for the metrics a client has under way at most: one is answered at a time, after those that came before.
const mostScrapes = 4

// scrapes is how many each client has, by name.
type scrapes struct {
	mu sync.Mutex
	of map[string]int
}

// begin counts a call until done is called.
func (s *scrapes) begin(by caller) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[by.name] >= mostScrapes {
		return nil, status.Errorf(codes.ResourceExhausted, "nodeapi: %d calls of %s for the metrics are under way, and that is the most: wait for their answers", mostScrapes, by.name)
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.of[by.name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.of[by.name]--; s.of[by.name] == 0 {
			delete(s.of, by.name)
		}
	}, nil
}

// RecoverStore implements the RPC.
func (s *service) RecoverStore(ctx context.Context, request *nodev1.RecoverStoreRequest) (*nodev1.RecoverStoreResponse, error) {
	before, after, err := s.config.RecoverStore(ctx, request.GetDryRun())
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.RecoverStoreResponse{SizeBefore: before, SizeAfter: after}, nil
}

// ReplaceOwner implements the RPC.
func (s *service) ReplaceOwner(ctx context.Context, request *nodev1.ReplaceOwnerRequest) (*nodev1.ReplaceOwnerResponse, error) {
	key := request.GetOwnerPublicKey()
	if len(key) != ed25519.PublicKeySize {
		return nil, status.Errorf(codes.InvalidArgument, "nodeapi: an owner key is an Ed25519 public key of %d bytes, not of %d", ed25519.PublicKeySize, len(key))
	}
	waiting, err := s.config.ReplaceOwner(ctx, ed25519.PublicKey(key), callerOf(ctx).name, request.GetDryRun())
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.ReplaceOwnerResponse{WaitingNodes: waiting}, nil
}

// SetPeers implements the RPC.
func (s *service) SetPeers(_ context.Context, request *nodev1.SetPeersRequest) (*nodev1.SetPeersResponse, error) {
	all, err := s.config.SetPeers(request.GetPeers(), request.GetDryRun())
	var wrong *network.PeerError
	if errors.As(err, &wrong) {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err != nil {
		return nil, failure(err)
	}
	return &nodev1.SetPeersResponse{Peers: all}, nil
}

func checkRole(role string) error {
	if !names.ValidName(role) {
		return status.Errorf(codes.InvalidArgument, "nodeapi: %q is not the name of a role: `reeve status` lists the roles of this node", limits.Cut(role, limits.Name))
	}
	return nil
}

// failure turns the error of another room into a call's.
func failure(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, roles.ErrStopping):
		return errStopping
	}
	if known, ok := status.FromError(err); ok {
		return status.Error(known.Code(), reason(err))
	}
	return status.Error(codes.Internal, reason(err))
}

// reason is what an error says. A role may have had a part in it.
func reason(err error) string {
	text := err.Error()
	if known, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		text = known.GRPCStatus().Message()
	}
	return limits.Cut(limits.Clean(limits.Cut(text, maxReason)), maxReason)
}
