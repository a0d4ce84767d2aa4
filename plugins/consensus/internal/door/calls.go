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
	answered bool // its status is on the way, behind its answers
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
	if caller := t.callers.of(ctx); caller != nil {
		return context.WithValue(ctx, turnKey{}, &turn{caller: caller, of: caller.turnsOf(info.FullMethodName)})
	}
	return ctx
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
