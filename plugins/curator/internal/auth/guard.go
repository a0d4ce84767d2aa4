package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
	"github.com/reeveproject/reeve/sdk/event"
)

// Permissions is who may call which RPC, by the RPC's full name.
type Permissions map[string]*clusterv1.Permission

// Declared returns the permissions that the RPCs of services declare. An RPC that declares no one, or a caller that is not among those that
// the server can tell, is an error; all of them are reported at once.
func Declared(services map[string]grpc.ServiceInfo, tellable ...clusterv1.Caller) (Permissions, error) {
	declared, err := rpcoption.Declared[*clusterv1.Permission](services, clusterv1.E_Permission)
	if err != nil {
		return nil, fmt.Errorf("permissions: %w", err)
	}
	var problems []error
	for _, rpc := range slices.Sorted(maps.Keys(declared)) {
		callers := declared[rpc].GetCallers()
		if len(callers) == 0 {
			problems = append(problems, fmt.Errorf("permissions: RPC %s declares that nobody may call it", rpc))
		}
		for _, caller := range callers {
			if caller == clusterv1.Caller_CALLER_NEWCOMER && len(callers) > 1 {
				// What pins a key and what takes any would get into each other's way.
				problems = append(problems, fmt.Errorf("permissions: RPC %s is for newcomers and for others: it can be for one of them", rpc))
			}
			if caller == clusterv1.Caller_CALLER_UNSPECIFIED || !slices.Contains(tellable, caller) {
				problems = append(problems, fmt.Errorf("permissions: RPC %s is for %s, which this server cannot tell", rpc, caller))
			}
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return declared, nil
}

// GuardConfig is what a Guard needs.
type GuardConfig struct {
	// Authenticate tells who calls.
	Authenticate func(context.Context) (Caller, error)
	// Starts is what the starts of a node's core are held against; nil: nothing is asked of nodes but who they are.
	Starts *Starts
	// Snapshots is the state of the cluster as it changes, and News those of it after which somebody may not be admitted any more: by them streams are ended; nil: they are not.
	Snapshots, News *event.Value[*cache.Snapshot]
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Told is told who has called, and whether the call is let through, before it is; nil: nobody is.
	Told func(ctx context.Context, caller Caller, admitted bool)
}

// Guard lets only those callers through to an RPC that the RPC declares. Before Enforce it lets nobody through.
type Guard struct {
	config      GuardConfig
	permissions atomic.Pointer[Permissions]
}

// NewGuard returns a Guard.
func NewGuard(config GuardConfig) *Guard {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Guard{config: config}
}

// Enforce sets what is permitted, once the services are registered and Declared has passed.
func (g *Guard) Enforce(permissions Permissions) { g.permissions.Store(&permissions) }

// Unary is the interceptor of unary RPCs.
func (g *Guard) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, _, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// Stream is the interceptor of streams. A stream is admitted when it begins, and ends when its caller would not be admitted any more: as soon as that is known, or, if it is a node that
// sends on it, with the next that it sends.
func (g *Guard) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, caller, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if info.IsClientStream && caller.Kind == clusterv1.Caller_CALLER_NODE && g.config.Snapshots != nil {
		return handler(service, &admitted{ServerStream: stream, ctx: ctx, stands: func() error { return g.stands(caller) }})
	}
	return g.hold(ctx, caller, func(ctx context.Context) error {
		return handler(service, &admitted{ServerStream: stream, ctx: ctx})
	})
}

func (g *Guard) admit(ctx context.Context, rpc string) (context.Context, Caller, error) {
	permissions := g.permissions.Load()
	if permissions == nil {
		return nil, Caller{}, answer.Unbegun(answer.Errorf(codes.Unavailable, "the curator is starting: try again"))
	}
	permission := (*permissions)[rpc]
	authenticate := g.config.Authenticate
	if slices.Contains(permission.GetCallers(), clusterv1.Caller_CALLER_NEWCOMER) {
		authenticate = Newcomer
	}
	caller, err := authenticate(ctx)
	if err != nil {
		return nil, Caller{}, answer.Unbegun(err)
	}
	if err = permitted(permission, rpc, caller); err == nil && caller.Kind == clusterv1.Caller_CALLER_NODE && g.config.Starts != nil {
		caller, err = g.config.Starts.calling(ctx, caller)
	}
	if g.config.Told != nil {
		g.config.Told(ctx, caller, err == nil)
	}
	if err != nil {
		return nil, Caller{}, err
	}
	return context.WithValue(ctx, callerKey{}, caller), caller, nil
}

// permitted returns why a caller may not call an RPC. An RPC that is not known is for nobody.
func permitted(permission *clusterv1.Permission, rpc string, caller Caller) error {
	if caller.Kind == clusterv1.Caller_CALLER_UNSPECIFIED || !slices.Contains(permission.GetCallers(), caller.Kind) {
		return answer.Errorf(codes.PermissionDenied, "%s is not for %s: it is for %s", rpc, described(caller), spell(permission.GetCallers()))
	}
	if caller.byKey() && !permission.GetByKey() {
		return answer.Errorf(codes.PermissionDenied, "%s has shown its key, which is for logging in only: call %s with the certificate that Login gives (`reeve login`)", caller, rpc)
	}
	return nil
}

// described is a caller for a message that says what the caller lacks.
func described(caller Caller) string {
	if caller.Person == nil || caller.Person.Operator == "" {
		return caller.String()
	}
	role := strings.ToLower(strings.TrimPrefix(caller.Person.Role.String(), "OPERATOR_ROLE_"))
	return fmt.Sprintf("%s, whose role is %s", caller, role)
}

func spell(callers []clusterv1.Caller) string {
	var names []string
	for _, caller := range callers {
		switch caller {
		case clusterv1.Caller_CALLER_NODE:
			names = append(names, "nodes of the cluster")
		case clusterv1.Caller_CALLER_NEWCOMER:
			names = append(names, "machines that come")
		case clusterv1.Caller_CALLER_OWNER:
			names = append(names, "the cluster's owner")
		case clusterv1.Caller_CALLER_OPERATOR:
			names = append(names, "operators")
		case clusterv1.Caller_CALLER_VIEWER:
			names = append(names, "viewers")
		default:
			names = append(names, caller.String())
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " and ")
}
