package door

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
)

// streaming are the calls that go on.
var streaming = map[string]bool{
	pb.Watch_Watch_FullMethodName:          true,
	pb.Lease_LeaseKeepAlive_FullMethodName: true,
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

// turns counts calls in and out, and has them wait for their turn. gRPC tells a stats.Handler that a call begins right before it reads the request: later, its bytes would be in memory.
// A grpc.InTapHandle would be told before, and not when the call ends, which takes a goroutine for each call; and gRPC keeps in memory what it refuses.
type turns struct{ callers *callers }

// turn is that of one call.
type turn struct {
	caller   *caller
	stream   bool
	of       chan struct{} // nil: it needs none
	taken    bool
	refused  error // why it is not carried out; nil: it is
	answered bool  // its status is on the way, behind its answers
}

// begin counts the call in, and waits for its turn, or for ctx to be done. A call that is too many is refused by its interceptor; one of a flood of these has its connection closed.
func (t *turn) begin(ctx context.Context) {
	var flood bool
	t.refused, flood = t.caller.begin(t.stream)
	if flood {
		connectionOf(ctx).flooded()
	}
	if t.refused != nil || t.of == nil {
		return
	}
	select { // the usual case, which is cheaper by itself
	case t.of <- struct{}{}:
		t.taken = true
		return
	default:
	}
	select {
	case t.of <- struct{}{}:
		t.taken = true
	case <-ctx.Done():
	}
}

// end counts it out.
func (t *turn) end(ctx context.Context) {
	if t.taken {
		<-t.of
	}
	t.caller.end(t.stream)
	if !t.answered { // The stream was reset, and gRPC may have thrown answers away without giving them back.
		connectionOf(ctx).giveUp(t)
	}
}

type turnKey struct{}

var _ stats.Handler = turns{}

// growStack has a call's goroutine take at once the stack that it will need. It begins with little and would double that again and again deep within etcd, where each time all frames of
// the stack are copied: that is an eighth of what a read costs.
//
//go:noinline
func growStack(n int) byte {
	var room [8 << 10]byte
	return room[n%len(room)]
}

func (t turns) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	_ = growStack(0)
	caller := t.callers.of(ctx)
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, &turn{caller: caller, stream: streaming[info.FullMethodName], of: caller.turnsOf(info.FullMethodName)})
}

// turnOf is that of a call; nil: one that is not bounded.
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
		own.begin(ctx)
	case *stats.OutTrailer:
		own.answered = true
	case *stats.End:
		own.end(ctx)
	}
}

func (turns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (turns) HandleConn(context.Context, stats.ConnStats) {}
