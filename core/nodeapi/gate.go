package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// tellable is the callers that this server can tell, and how errors name them.
var tellable = map[clusterv1.Caller]string{
	clusterv1.Caller_CALLER_LOCAL:    "processes of the core's own user on the node's local socket",
	clusterv1.Caller_CALLER_OWNER:    "the cluster's owner",
	clusterv1.Caller_CALLER_OPERATOR: "operators with the role operator",
	clusterv1.Caller_CALLER_VIEWER:   "viewers",
	clusterv1.Caller_CALLER_NODE:     "nodes of the cluster",
}

// permissions returns what every RPC declares: who may call it, and whether calls are kept. An RPC that says nothing, or permits somebody whom this server
// cannot tell, is an error; all of them are reported at once.
func permissions(services map[string]grpc.ServiceInfo) (map[string]*clusterv1.Permission, error) {
	declared, err := rpcoption.Declared[*clusterv1.Permission](services, clusterv1.E_Permission)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: %w", err)
	}
	var problems []error
	for _, method := range slices.Sorted(maps.Keys(declared)) {
		permission := declared[method]
		if len(permission.GetCallers()) == 0 {
			problems = append(problems, fmt.Errorf("nodeapi: RPC %s does not say who may call it", method))
		}
		for _, kind := range permission.GetCallers() {
			if _, ok := tellable[kind]; !ok {
				problems = append(problems, fmt.Errorf("nodeapi: RPC %s is for %v, which a node cannot tell", method, kind))
			}
		}
		if permission.GetByKey() {
			problems = append(problems, fmt.Errorf("nodeapi: RPC %s is for operators by their key, whom a node does not let in", method))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return declared, nil
}

// gate refuses calls to those who may not make them, ends the streams of those who may no longer, and has audited calls recorded.
type gate struct {
	permitted map[string]*clusterv1.Permission
	callers   *callers
	audit     *audit
	// running counts the calls; ending is what those are told that come too late, and shut why one is not answered now.
	running *running
	ending  func() error
	shut    func(method string) error
}

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	end, ok := g.running.begin(answeredLast(info.FullMethod))
	if !ok {
		return nil, g.ending()
	}
	defer end()
	who, refused := g.admit(ctx, info.FullMethod)
	if g.permitted[info.FullMethod].GetAudited() {
		entry := call{who: who, method: info.FullMethod, refused: refused != nil}
		entry.saw(request)
		defer func() { g.audit.record(entry, err) }()
	}
	if refused != nil {
		return nil, refused
	}
	if err := g.shut(info.FullMethod); err != nil {
		return nil, err
	}
	return handler(context.WithValue(ctx, callerKey{}, who), request)
}

func (g *gate) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	end, ok := g.running.begin(answeredLast(info.FullMethod))
	if !ok {
		return g.ending()
	}
	defer end()
	who, refused := g.admit(stream.Context(), info.FullMethod)
	var entry *call
	if g.permitted[info.FullMethod].GetAudited() {
		entry = &call{who: who, method: info.FullMethod, refused: refused != nil}
		defer func() { g.audit.record(*entry, err) }()
	}
	if refused != nil {
		return refused
	}
	if err := g.shut(info.FullMethod); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithValue(stream.Context(), callerKey{}, who))
	defer cancel()
	var ended error
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if ended = g.hold(ctx, who, info.FullMethod); ended != nil {
			cancel()
		}
	}()
	err = handler(server, &admitted{ServerStream: stream, ctx: ctx, entry: entry})
	cancel()
	<-watched
	if ended != nil {
		return ended
	}
	return err
}

// admit says who makes a call, and refuses it if that caller may not.
func (g *gate) admit(ctx context.Context, method string) (caller, error) {
	who, err := g.callers.of(ctx)
	if err != nil {
		return who, status.Error(codes.Unauthenticated, err.Error())
	}
	return who, g.check(who, method)
}

func (g *gate) check(who caller, method string) error {
	permitted := g.permitted[method].GetCallers()
	if slices.Contains(permitted, who.kind) {
		return nil
	}
	if len(permitted) == 0 {
		return status.Errorf(codes.PermissionDenied, "nodeapi: nobody may call %s", shortName(method))
	}
	var others []string
	for _, kind := range permitted {
		others = append(others, tellable[kind])
	}
	return status.Errorf(codes.PermissionDenied, "nodeapi: %s is not for %s (%s): it is for %s", shortName(method), who.name, tellable[who.kind], strings.Join(others, ", "))
}

// hold returns when the caller of a stream may not have it any longer, with the reason, or nil when the context ends. The certificate that began the stream
// may run out meanwhile: it proved what it had to, and the session goes on.
func (g *gate) hold(ctx context.Context, who caller, method string) error {
	if who.local() {
		return nil
	}
	identities, operators := g.callers.identity.Watch(), g.callers.operators.Watch()
	for {
		_, _ = identities.Latest()
		_, _ = operators.Latest()
		now, err := g.callers.present(who)
		if err != nil {
			return status.Error(codes.Unauthenticated, err.Error())
		}
		if err := g.check(now, method); err != nil {
			return err
		}
		var lookAgain <-chan time.Time
		if who.session != nil {
			lookAgain = time.After(min(who.session.Ends.Sub(g.callers.now()), clockCheck))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-identities.Changed():
		case <-operators.Changed():
		case <-lookAgain:
		}
	}
}

// clockCheck is how often the clock is looked at by which a session ends. One that is set does not change when a timer fires: it may fire before the
// session has ended, and long after.
const clockCheck = time.Minute

// admitted is the stream of a caller that may lose it. A message that the client was too slow to take is not called back: it was made while the caller
// might have it.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
	// entry, if not nil, takes the first message.
	entry *call
}

// Context implements grpc.ServerStream.
func (a *admitted) Context() context.Context { return a.ctx }

// SendMsg implements grpc.ServerStream.
func (a *admitted) SendMsg(message any) error {
	if err := a.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return a.ServerStream.SendMsg(message)
}

// RecvMsg implements grpc.ServerStream.
func (a *admitted) RecvMsg(message any) error {
	if err := a.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if err := a.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if a.entry != nil {
		a.entry.saw(message)
		a.entry = nil
	}
	return nil
}

type callerKey struct{}

// callerOf is who makes a call that the gate let through.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// shortName is the last part of an RPC's full name.
func shortName(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }

// recovered answers a call whose handler panicked, so that a mistake in one answer does not stop the node.
func (s *Server) recovered(ctx context.Context, cause any) error {
	method, _ := grpc.Method(ctx)
	s.config.Log.Error("a call of the node's API panicked", "method", method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "nodeapi: %s failed by a mistake in the core; its log says where", method)
}
