package target_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// startLameCurator serves, besides the one that works, a curator whose store is away: it lets everybody in and answers nothing. If it is honest it says that it has begun with nothing
// of what it is asked. It counts its calls.
func (r *rig) startLameCurator(honest bool) *atomic.Int32 {
	r.t.Helper()
	refused := status.New(codes.Unavailable, "the store has no leader")
	if honest {
		var err error
		if refused, err = refused.WithDetails(new(errdetails.RetryInfo)); err != nil {
			r.t.Fatal(err)
		}
	}
	calls := new(atomic.Int32)
	r.playCurator(func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		calls.Add(1)
		return refused.Err()
	}))
	return calls
}

// A curator whose store is away is no reason to fail while another one works, for calls and for streams that read. What changes something is not made twice.
func TestAnyCurator(t *testing.T) {
	r := newRig(t)
	lame := r.startLameCurator(false)
	options := r.options()
	options.Dir, options.OwnerKeyFile = r.dir, r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	untilServed(t, cluster)
	for deadline := time.Now().Add(time.Minute); lame.Load() < 2; {
		if err := list(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the curator that works gets every call: they are not spread")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = cluster.WatchNode(ctx, nodeA, func(*clusterv1.Node) { cancel() }, func(err error) { t.Logf("lost: %v", err) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("watching: %v", err)
	}
	management, err := cluster.Management(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for range 4 {
		before := lame.Load()
		_, err := management.SetLabels(t.Context(), &clusterv1.SetLabelsRequest{NodeId: nodeA, Labels: map[string]string{"a": "b"}})
		if fault.CodeOf(fault.FromRPC(err, "no label", "")) == fault.Unreachable {
			refused++
		}
		if calls := lame.Load() - before; calls > 1 {
			t.Errorf("a call that changes something was made %d times", calls)
		}
	}
	if refused == 0 {
		t.Error("no call went to the curator whose store is away")
	}
}

// A curator that says that it has not begun with a call is no reason to fail for any call: it is made again with another one.
func TestUnbegunCallsAreMadeAgain(t *testing.T) {
	r := newRig(t)
	lame := r.startLameCurator(true)
	options := r.options()
	options.Dir, options.OwnerKeyFile = r.dir, r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	management, err := cluster.Management(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	untilServed(t, cluster)
	before := lame.Load()
	for deadline := time.Now().Add(time.Minute); lame.Load() < before+2; {
		if _, err := management.SetLabels(t.Context(), &clusterv1.SetLabelsRequest{NodeId: nodeA, Labels: map[string]string{"a": "b"}}); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the curator that works gets every call: they are not spread")
		}
	}
}

// untilServed waits until the curator that works is connected. Calls are spread among those that are: at first that may be the other one alone.
func untilServed(t *testing.T, cluster *target.Target) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		err := list(t.Context(), cluster)
		if err == nil {
			return
		}
		if fault.CodeOf(err) != fault.Unreachable || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// One that dies is no reason to fail either, and its streams go on with another.
func TestCuratorDies(t *testing.T) {
	r := newRig(t)
	options := r.options()
	options.Dir, options.OwnerKeyFile = r.dir, r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := 0
	err = cluster.WatchNode(ctx, nodeA, func(*clusterv1.Node) {
		if seen++; seen == 1 {
			r.move()
			return
		}
		cancel()
	}, func(error) {})
	if seen < 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("seen %d times: %v", seen, err)
	}
}
