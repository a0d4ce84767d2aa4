package nodeapi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// GetRole implements the RPC.
func (s *service) GetRole(ctx context.Context, request *nodev1.GetRoleRequest) (*nodev1.GetRoleResponse, error) {
	if err := checkRole(request.GetRole()); err != nil {
		return nil, err
	}
	if s.config.Role == nil {
		return nil, missing("tell what a role runs as")
	}
	answer, err := s.config.Role(ctx, request.GetRole())
	var unknown *roles.NotDesiredError
	if errors.As(err, &unknown) {
		return nil, status.Error(codes.NotFound, reason(err)+": `reeve status` lists the roles of this node")
	}
	if err != nil {
		return nil, failure(err)
	}
	return answer, nil
}
