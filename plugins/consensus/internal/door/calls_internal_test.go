package door

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// callOf begins a call of ant as gRPC does, on a connection of its own.
func callOf(t *testing.T, method string) (context.Context, turns) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	made, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	o := &opening{log: hclog.NewNullLogger(), connections: make(map[*connection]struct{})}
	on := &connection{UnixConn: made.(*net.UnixConn), of: o}
	t.Cleanup(func() { on.Close() })
	all := newCallers("curator", DefaultPatience, DefaultReadBound)
	ant := newCaller("ant", DefaultPatience, DefaultReadBound)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: address{of: on}})
	return context.WithValue(ctx, turnKey{}, &turn{caller: ant, of: ant.turnsOf(method)}), turns{all}
}

// TestAnswersOfResetCallsAreGivenUp ends calls as gRPC does that were reset while their answer was queued: it throws the answer away, and its pool is not told.
func TestAnswersOfResetCallsAreGivenUp(t *testing.T) {
	for _, method := range []string{pb.KV_Range_FullMethodName, pb.Watch_Watch_FullMethodName} {
		ctx, all := callOf(t, method)
		ant := turnOf(ctx).caller
		answer := func(ctx context.Context, trailer bool) {
			all.HandleRPC(ctx, &stats.Begin{})
			if !ant.tryReserve(1 << 20) {
				t.Fatal("no room")
			}
			ant.holding(ctx, 1<<20)
			if trailer {
				all.HandleRPC(ctx, &stats.OutTrailer{})
			}
			all.HandleRPC(ctx, &stats.End{})
		}
		answer(ctx, false)
		if ant.answers != 0 || len(ant.reading) != 0 {
			t.Errorf("%s, reset: %d bytes and %d turns are taken", method, ant.answers, len(ant.reading))
		}
		// One that is on its way is not.
		answer(ctx, true)
		if ant.answers != 1<<20 || len(ant.reading) != 0 {
			t.Errorf("%s: %d bytes and %d turns are taken", method, ant.answers, len(ant.reading))
		}
	}
}

// TestNoTurnNoCall has a call end before its turn. gRPC hands it over all the same.
func TestNoTurnNoCall(t *testing.T) {
	ctx, all := callOf(t, pb.KV_Range_FullMethodName)
	ant := turnOf(ctx).caller
	for range maxTurns {
		ant.reading <- struct{}{}
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	all.HandleRPC(ctx, &stats.Begin{})
	_, err := unary(nil)(ctx, &pb.RangeRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.KV_Range_FullMethodName}, func(context.Context, any) (any, error) {
		t.Error("it was carried out")
		return nil, nil
	})
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	all.HandleRPC(ctx, &stats.End{})
	if len(ant.reading) != maxTurns {
		t.Errorf("%d turns are taken", len(ant.reading))
	}
}

// TestCallsAreCountedInAndOut begins as many calls as there may be, and more: those are refused and take no turn, and the connection of a flood of them is closed.
func TestCallsAreCountedInAndOut(t *testing.T) {
	ctx, all := callOf(t, pb.KV_Range_FullMethodName)
	from, _ := peer.FromContext(ctx)
	ctx = peer.NewContext(t.Context(), &peer.Peer{Addr: from.Addr, AuthInfo: store.Identity("ant")})
	begin := func(method string) context.Context {
		ctx := all.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: method})
		all.HandleRPC(ctx, &stats.Begin{})
		return ctx
	}
	end := func(ctx context.Context) {
		all.HandleRPC(ctx, &stats.OutTrailer{})
		all.HandleRPC(ctx, &stats.End{})
	}
	first := begin(pb.KV_Range_FullMethodName)
	ant := turnOf(first).caller
	if turnOf(first).refused != nil || !turnOf(first).taken {
		t.Errorf("the first one: %+v", turnOf(first))
	}
	for range maxCalls - 1 {
		if refused, flood := ant.begin(false); refused != nil || flood {
			t.Fatalf("%v, flood %t", refused, flood)
		}
	}
	one := begin(pb.KV_Range_FullMethodName)
	if own := turnOf(one); own.taken || status.Code(own.refused) != codes.ResourceExhausted {
		t.Errorf("one too many has a turn, or no refusal: %+v", own)
	}
	if on := connectionOf(ctx); on.closed {
		t.Error("the connection of one too many is closed")
	}
	for range maxRefused - 1 {
		ant.begin(false)
	}
	flood := begin(pb.KV_Range_FullMethodName)
	if on := connectionOf(ctx); !on.closed {
		t.Error("the connection of a flood is open")
	}
	for _, ctx := range []context.Context{first, one, flood} {
		end(ctx)
	}
	if want := maxCalls + maxRefused - 2; ant.calls != want || len(ant.reading) != 0 {
		t.Errorf("%d calls are under way and have %d turns, want %d and none", ant.calls, len(ant.reading), want)
	}
}
