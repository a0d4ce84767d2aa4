package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// Permissions is who may call which RPC, by the RPC's full name.
type Permissions map[string][]clusterv1.Caller

// Declared returns the permissions that the RPCs of services declare. An RPC that declares no one, or a caller that is not among those that
// the server can tell, is an error; all of them are reported at once.
func Declared(services map[string]grpc.ServiceInfo, tellable ...clusterv1.Caller) (Permissions, error) {
	declared, err := rpcoption.Declared[*clusterv1.Permission](services, clusterv1.E_Permission)
	if err != nil {
		return nil, fmt.Errorf("permissions: %w", err)
	}
	permissions := make(Permissions)
	var problems []error
	for _, rpc := range slices.Sorted(maps.Keys(declared)) {
		callers := declared[rpc].GetCallers()
		if len(callers) == 0 {
			problems = append(problems, fmt.Errorf("permissions: RPC %s declares that nobody may call it", rpc))
		}
		for _, caller := range callers {
			if !slices.Contains(tellable, caller) {
				problems = append(problems, fmt.Errorf("permissions: RPC %s is for %s, which this server cannot tell", rpc, caller))
			}
		}
		permissions[rpc] = callers
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return permissions, nil
}

// Guard lets only those callers through to an RPC that the RPC declares. Before Enforce it lets nobody through.
type Guard struct {
	authenticate func(context.Context) (Caller, error)
	permissions  atomic.Pointer[Permissions]
}

// NewGuard returns a Guard that learns from authenticate who calls.
func NewGuard(authenticate func(context.Context) (Caller, error)) *Guard {
	return &Guard{authenticate: authenticate}
}

// Enforce sets what is permitted, once the services are registered and Declared has passed.
func (g *Guard) Enforce(permissions Permissions) { g.permissions.Store(&permissions) }

// Unary is the interceptor of unary RPCs.
func (g *Guard) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// Stream is the interceptor of streams. A stream is admitted when it begins.
func (g *Guard) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return handler(service, &admitted{ServerStream: stream, ctx: ctx})
}

func (g *Guard) admit(ctx context.Context, rpc string) (context.Context, error) {
	permissions := g.permissions.Load()
	if permissions == nil {
		return nil, status.Error(codes.Unavailable, "the curator is starting: try again")
	}
	caller, err := g.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	callers := (*permissions)[rpc]
	if !slices.Contains(callers, caller.Kind) {
		return nil, status.Errorf(codes.PermissionDenied, "%s is not for %s: it is for %s", rpc, caller, spell(callers))
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

func spell(callers []clusterv1.Caller) string {
	var names []string
	for _, caller := range callers {
		switch caller {
		case clusterv1.Caller_CALLER_NODE:
			names = append(names, "nodes of the cluster")
		case clusterv1.Caller_CALLER_OWNER:
			names = append(names, "the cluster's owner")
		default:
			names = append(names, caller.String())
		}
	}
	return strings.Join(names, " and ")
}

type callerKey struct{}

// CallerOf returns who made a call that a Guard let through.
func CallerOf(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}

type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *admitted) Context() context.Context { return s.ctx }
