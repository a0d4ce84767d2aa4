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
	"google.golang.org/grpc/tap"

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
	_, err := unary(nil, all.callers)(ctx, &pb.RangeRequest{}, &grpc.UnaryServerInfo{FullMethod: pb.KV_Range_FullMethodName}, func(context.Context, any) (any, error) {
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

// TestNoCallIsRefusedByTheTap has the tap refuse nothing: gRPC would keep the context of such a call until its deadline.
func TestNoCallIsRefusedByTheTap(t *testing.T) {
	ant := newCaller("ant", DefaultPatience, DefaultReadBound)
	for n := 1; n <= maxCalls+maxRefused+1; n++ {
		refused, flood := ant.begin(false)
		if (refused != nil) != (n > maxCalls) || flood != (n > maxCalls+maxRefused) {
			t.Fatalf("call %d: %v, flood %t", n, refused, flood)
		}
	}
	ctx, all := callOf(t, pb.KV_Range_FullMethodName)
	all.callers.known["ant"] = ant
	from, _ := peer.FromContext(ctx)
	ctx = peer.NewContext(t.Context(), &peer.Peer{Addr: from.Addr, AuthInfo: store.Identity("ant")})
	ctx, err := all.callers.tap(ctx, &tap.Info{FullMethodName: pb.KV_Range_FullMethodName})
	if err != nil {
		t.Fatal(err)
	}
	if own := turnOf(all.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: pb.KV_Range_FullMethodName})); own.of != nil || status.Code(own.refused) != codes.ResourceExhausted {
		t.Errorf("it has a turn, or no refusal: %+v", own)
	}
	if on := connectionOf(ctx); !on.closed {
		t.Error("the connection of a flood is open")
	}
}
