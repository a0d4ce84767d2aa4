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

type refusedKey struct{}

// tap sees each call before anything of its request is read. One that is too many is let through, and refused by its interceptor; one of a flood of these has its connection closed.
//
// It returns no error: gRPC does not cancel the context of a call that is refused here, and keeps it in memory until the deadline that the caller has set, also when the connection is gone.
func (c *callers) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	caller := c.of(ctx)
	if caller == nil {
		return ctx, nil
	}
	stream := streaming[info.FullMethodName]
	refused, flood := caller.begin(stream)
	context.AfterFunc(ctx, func() { caller.end(stream) })
	if flood {
		connectionOf(ctx).flooded()
	}
	if refused != nil {
		ctx = context.WithValue(ctx, refusedKey{}, refused)
	}
	return ctx, nil
}

// reads are the calls that wait for nothing but the store itself.
var reads = map[string]bool{
	pb.KV_Range_FullMethodName:              true,
	pb.Lease_LeaseTimeToLive_FullMethodName: true,
	pb.Lease_LeaseLeases_FullMethodName:     true,
	pb.Maintenance_Status_FullMethodName:    true,
}

// turnsOf are the turns of which a call takes one. Streams take none.
func (c *caller) turnsOf(method string) chan struct{} {
	switch {
	case streaming[method]:
		return nil
	case reads[method]:
		return c.reading
	}
	return c.writing
}

// turns has calls wait for their turn. gRPC tells a stats.Handler that a call begins right before it reads the request: later, its bytes would be in memory.
type turns struct{ callers *callers }

// turn is that of one call.
type turn struct {
	caller   *caller
	of       chan struct{} // nil: it needs none
	taken    bool
	refused  error // why it is not carried out; nil: it is
	answered bool  // its status is on the way, behind its answers
}

// take waits for the turn, or for ctx to be done.
func (t *turn) take(ctx context.Context) {
	if t.of == nil {
		return
	}
	select {
	case t.of <- struct{}{}:
		t.taken = true
	case <-ctx.Done():
	}
}

type turnKey struct{}

var _ stats.Handler = turns{}

func (t turns) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	caller := t.callers.of(ctx)
	if caller == nil {
		return ctx
	}
	own := &turn{caller: caller}
	if own.refused, _ = ctx.Value(refusedKey{}).(error); own.refused == nil {
		own.of = caller.turnsOf(info.FullMethodName)
	}
	return context.WithValue(ctx, turnKey{}, own)
}

func turnOf(ctx context.Context) *turn {
	own, _ := ctx.Value(turnKey{}).(*turn)
	return own
}

func (turns) HandleRPC(ctx context.Context, event stats.RPCStats) {
	own := turnOf(ctx)
	if own == nil {
		return
	}
	switch event.(type) {
	case *stats.Begin:
		own.take(ctx)
	case *stats.OutTrailer:
		own.answered = true
	case *stats.End:
		if own.taken {
			<-own.of
		}
		if !own.answered { // The stream was reset, and gRPC may have thrown answers away without giving them back.
			connectionOf(ctx).giveUp(own)
		}
	}
}

func (turns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (turns) HandleConn(context.Context, stats.ConnStats) {}
