package server_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestPortInUse(t *testing.T) {
	c := newCluster(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	second := start(t, etcd, c.prefix, func(config *server.Config) {
		config.Configuration = configuration.Configuration{Listen: taken.Addr().String()}
	})
	err = <-second.ended
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) || !strings.Contains(err.Error(), `"listen"`) {
		t.Errorf("Run: %v", err)
	}
	if state, _ := second.host.state.Get(); state != "" {
		t.Errorf("the host was told %q", state)
	}
	second.stop = func() error { return nil }
}

// An instance that comes after another one has all that the other had.
func TestAnotherInstance(t *testing.T) {
	c := newCluster(t)
	if _, err := c.asOwner().AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	c.curator = start(t, etcd, c.prefix, nil).ready()
	got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
	if err != nil || len(got.GetNode().GetRecord().GetRoles()) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Errorf("with the SVID of before: %v", err)
	}
}

func TestStreamsEndWithTheCurator(t *testing.T) {
	c := newCluster(t)
	w := watch(t, c.asNode())
	w.await("the present state", func(*clusterv1.WatchResponse) bool { return true })
	node, err := c.asOwner().WatchNode(t.Context(), &clusterv1.WatchNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	_, err = w.stream.Recv()
	wantCode(t, err, codes.Unavailable, "stopping")
	_, err = node.Recv()
	wantCode(t, err, codes.Unavailable, "stopping")
}

func TestStopBeforeThereIsACluster(t *testing.T) {
	c := start(t, etcd, etcd.NewPrefix(), nil)
	if err := c.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if state, _ := c.host.state.Get(); state != "" {
		t.Errorf("the host was told %q", state)
	}
}

// The store goes away, and comes back: the role says so, calls are answered in time, and nothing has to be restarted.
func TestStoreAway(t *testing.T) {
	own, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	// After the clients are closed, which are cleaned up before.
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := newClusterOn(t, own, func(config *server.Config) {
		config.AnswerWithin, config.ProbeEvery = time.Second, 20*time.Millisecond
	})
	owner := c.asOwner()
	w := watch(t, c.asNode())
	w.await("the present state", func(*clusterv1.WatchResponse) bool { return true })

	own.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	degraded, err := c.curator.host.state.Wait(ctx, func(state string) bool { return strings.HasPrefix(state, "degraded") })
	if err != nil || !strings.Contains(degraded, "consensus store") {
		t.Fatalf("the host was told %q: %v", degraded, err)
	}
	_, err = owner.GetClusterInfo(ctx, &clusterv1.GetClusterInfoRequest{})
	wantCode(t, err, codes.Unavailable, "consensus store", "try again")

	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.curator.host.state.Wait(ctx, func(state string) bool { return state == "ready" }); err != nil {
		t.Fatalf("the curator is not ready again: %v", err)
	}
	if _, err := owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	w.await("the role", func(r *clusterv1.WatchResponse) bool { return len(r.GetNode().GetRoles()) == 3 })
}

// What another version wrote is not touched.
func TestOtherFormat(t *testing.T) {
	c := newCluster(t)
	value, err := proto.Marshal(&curatorv1.Cluster{Format: store.Format + 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().Put(t.Context(), "cluster", string(value)); err != nil {
		t.Fatal(err)
	}
	_, err = c.asOwner().ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.FailedPrecondition, "format 2")
	_, err = c.curator.service.Bootstrap(t.Context(), c.request())
	wantCode(t, err, codes.FailedPrecondition, "format 2")
	second := start(t, etcd, c.prefix, nil)
	second.stop = func() error { return nil }
	var format *store.FormatError
	if err := <-second.ended; !errors.As(err, &format) {
		t.Errorf("Run: %v", err)
	}
}

// A mistake in one call is not the end of all others.
func TestPanic(t *testing.T) {
	var broken atomic.Bool
	c := newClusterOn(t, etcd, func(config *server.Config) {
		config.Now = func() time.Time {
			if broken.Load() {
				panic("the clock is broken")
			}
			return time.Now()
		}
	})
	byKey := clusterv1.NewNodeServiceClient(c.dial(c.curator, selfSigned(t, c.node)))
	if _, err := byKey.IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{}); err != nil {
		t.Fatal(err) // also makes the connection, whose handshake looks at the clock
	}
	broken.Store(true)
	_, err := byKey.IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{})
	wantCode(t, err, codes.Internal)
	if contains(status.Convert(err).Message(), "clock") {
		t.Errorf("the caller is told what is for the log: %v", err)
	}
	broken.Store(false)
	if _, err := byKey.IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}
