package roletest

import (
	"context"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Unimplement makes the host answer Unimplemented to methods by name, such as "WatchTrust", like an older core. Open streams stay. Without methods,
// it answers all of them again.
func (h *Host) Unimplement(methods ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = slices.Clone(methods)
}

// KnowFirstStates makes the host know only the states up to ROLE_STATE_STOPPED, like a core older than ROLE_STATE_BLOCKED: a role that is started
// afterwards must not use later ones.
func (h *Host) KnowFirstStates() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.firstStates = true
}

// states are the later states that a role may use.
func (h *Host) states() []rolev1.RoleState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.firstStates {
		return nil
	}
	return []rolev1.RoleState{rolev1.RoleState_ROLE_STATE_BLOCKED}
}

// Refused lists the methods that were refused because they are not granted, once per call.
func (h *Host) Refused() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.refused)
}

func (h *Host) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := h.knows(info.FullMethod); err != nil {
		return nil, err
	}
	answer, err := handler(ctx, request)
	h.judged(info.FullMethod, err)
	return answer, err
}

func (h *Host) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := h.knows(info.FullMethod); err != nil {
		return err
	}
	err := handler(service, stream)
	h.judged(info.FullMethod, err)
	return err
}

func (h *Host) knows(method string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.unknown, path.Base(method)) {
		return status.Errorf(codes.Unimplemented, "unknown method %s", path.Base(method))
	}
	return nil
}

func (h *Host) judged(method string, err error) {
	if status.Code(err) != codes.PermissionDenied {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, path.Base(method))
}
