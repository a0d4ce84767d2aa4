package door

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"
)

// streaming are the calls that go on.
var streaming = map[string]bool{
	pb.Watch_Watch_FullMethodName:          true,
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
}

// tap sees each call before anything of its request is read, and refuses those of a user that has too many.
func (c *callers) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	caller := c.of(ctx)
	if caller == nil {
		return ctx, nil
	}
	stream := streaming[info.FullMethodName]
	if err := caller.begin(stream); err != nil {
		connectionOf(ctx).refuse()
		return nil, err
	}
	context.AfterFunc(ctx, func() { caller.end(stream) })
	return ctx, nil
}

// turns has calls wait for their turn. gRPC tells a stats.Handler that a call begins right before it reads the request: later, its bytes would be in memory.
type turns struct{ callers *callers }

// turn is that of one call.
type turn struct {
	caller *caller
	taken  bool
}

type turnKey struct{}

var _ stats.Handler = turns{}

func (t turns) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if caller := t.callers.of(ctx); caller != nil && !streaming[info.FullMethodName] {
		return context.WithValue(ctx, turnKey{}, &turn{caller: caller})
	}
	return ctx
}

func (turns) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event.(type) {
	case *stats.Begin:
		if own, ok := ctx.Value(turnKey{}).(*turn); ok {
			own.taken = own.caller.takeTurn(ctx)
		}
	case *stats.End:
		if own, ok := ctx.Value(turnKey{}).(*turn); ok && own.taken {
			own.caller.endTurn()
		}
	}
}

func (turns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (turns) HandleConn(context.Context, stats.ConnStats) {}
