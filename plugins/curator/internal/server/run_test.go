package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// hold takes a port, until release is called.
func hold(t *testing.T) (address string, release func()) {
	t.Helper()
	// At an address of this process, so that nobody takes the port between one that listens and the next.
	id := os.Getpid() // up to 22 bits
	taken, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64|id>>16&63, id>>8&255, id&255))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	return taken.Addr().String(), func() {
		if err := taken.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An address that cannot be listened on keeps nobody from setting another one, and is served as soon as it can be.
func TestPortInUse(t *testing.T) {
	c := newCluster(t)
	address, release := hold(t)
	health := new(server.Health)
	second := start(t, etcd, c.prefix, func(config *server.Config) {
		config.Configuration, config.Health = configuration.Configuration{Listen: address}, health
	}).degraded(address, "in use", `"listen"`, "reeve node role add "+c.id+" curator --config")
	if state, _ := second.host.state.Get(); len(strings.TrimPrefix(state, "degraded: ")) > limits.Reason {
		t.Errorf("the reason is cut: %s", state)
	}
	if second.address == address || !strings.HasPrefix(second.address, "127.0.0.1:") {
		t.Errorf("the endpoint is %s", second.address)
	}
	c.curator = second
	before := c.asOwner()
	if _, err := before.AddRole(inTime(t), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	stream, err := before.WatchNode(inTime(t), &clusterv1.WatchNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := health.Check(inTime(t)); err != nil {
		t.Error(err)
	}

	release()
	if second.ready(); second.address != address {
		t.Errorf("the endpoint is %s, want %s", second.address, address)
	}
	if _, err := c.asOwner().RemoveRole(inTime(t), &clusterv1.RemoveRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Errorf("at the configured address: %v", err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("what was watched before does not go on: %v", err)
	}
	if err := health.Check(inTime(t)); err != nil {
		t.Error(err)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if err := free(address); err != nil {
		t.Error(err)
	}
}

// free reports whether nobody listens on an address any more.
func free(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

func TestAddressOfAnotherMachine(t *testing.T) {
	c := newCluster(t)
	second := start(t, etcd, c.prefix, func(config *server.Config) {
		config.Configuration = configuration.Configuration{Listen: "192.0.2.1:7400", Advertise: "192.0.2.1:7400"}
	}).degraded("192.0.2.1:7400", "none of this machine", "reeve node role add")
	c.curator = second
	if endpoint, told := second.host.endpoint.Get(); told || !strings.HasPrefix(second.address, "127.0.0.1:") {
		t.Errorf("the cluster was told %q, and the node %q", endpoint, second.address)
	}
	if _, err := c.asOwner().ListNodes(inTime(t), &clusterv1.ListNodesRequest{}); err != nil {
		t.Errorf("at %s: %v", second.address, err)
	}
	if err := second.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := free(second.address); err != nil {
		t.Error(err)
	}
}

// A store that is away and an address that cannot be had are two reasons, of which neither ends with the other.
func TestStoreAwayAndPortInUse(t *testing.T) {
	own, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := newClusterOn(t, own, func(config *server.Config) { config.AnswerWithin = 4 * time.Second })
	address, release := hold(t)
	second := start(t, own, c.prefix, func(config *server.Config) {
		config.Configuration = configuration.Configuration{Listen: address}
		config.AnswerWithin, config.ProbeEvery = 4*time.Second, 20*time.Millisecond
	}).degraded(address)
	own.Pause()
	second.degraded(address, "consensus store")
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	only := func(reason, not string) {
		t.Helper()
		second.entered(func(state string) bool { return contains(state, reason) && !contains(state, not) })
	}
	only(address, "consensus store")
	own.Pause()
	second.degraded(address, "consensus store")
	release()
	only("consensus store", "in use")
	if second.address != address {
		t.Errorf("the endpoint is %s, want %s", second.address, address)
	}
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	second.ready()
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
	// What was sent before is read first.
	for err == nil {
		_, err = w.stream.Recv()
	}
	wantCode(t, err, codes.Unavailable, "stopping")
	for err = nil; err == nil; {
		_, err = node.Recv()
	}
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
		config.AnswerWithin, config.ProbeEvery = 4*time.Second, 20*time.Millisecond
	})
	owner := c.asOwner()
	w := watch(t, c.asNode())
	var first *clusterv1.WatchResponse
	for first, err = w.stream.Recv(); status.Code(err) == codes.Unavailable; first, err = w.stream.Recv() {
		w = watch(t, c.asNode()) // a busy store may take longer for one answer than this curator waits
	}
	if w.last = first; err != nil {
		t.Fatal(err)
	}

	own.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	degraded, err := c.curator.host.state.Wait(ctx, func(state string) bool { return strings.HasPrefix(state, "degraded") })
	if err != nil || !strings.Contains(degraded, "consensus store") {
		t.Fatalf("the host was told %q: %v", degraded, err)
	}
	_, err = owner.GetClusterInfo(ctx, &clusterv1.GetClusterInfoRequest{})
	wantCode(t, err, codes.Unavailable, "consensus store", "try again")
	// Nothing was begun with a call that was not let in, so that it may be made again with another curator, whatever it is.
	_, err = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"})
	if !slices.ContainsFunc(status.Convert(err).Details(), func(detail any) bool { _, ok := detail.(*errdetails.RetryInfo); return ok }) {
		t.Errorf("the caller is not told that nothing was begun: %v", status.Convert(err).Proto())
	}

	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.curator.host.state.Wait(ctx, func(state string) bool { return state == "ready" }); err != nil {
		t.Fatalf("the curator is not ready again: %v", err)
	}
	// A busy store may take longer for one answer than this curator waits.
	for again := true; again; {
		_, err = owner.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"})
		again = status.Code(err) == codes.Unavailable
	}
	if err != nil {
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

// TestFollowsTheNode tells others the node's first address where the API is served on all addresses, and another one when the node has another.
func TestFollowsTheNode(t *testing.T) {
	c := newCluster(t)
	node := new(host)
	node.network.Set([]string{"192.0.2.1", "192.0.2.9"})
	second := start(t, etcd, c.prefix, func(config *server.Config) {
		config.Host, config.Configuration = node, configuration.Configuration{Listen: "0.0.0.0:0"}
	})
	told := func(address string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if last, err := node.endpoint.Wait(ctx, func(endpoint string) bool { return strings.Contains(endpoint, "="+address+":") }); err != nil {
			t.Fatalf("others are not told %s: %v, last %q", address, err, last)
		}
	}
	told("192.0.2.1")
	node.network.Set([]string{"192.0.2.2"})
	told("192.0.2.2")
	// None at this moment: the last one is better.
	node.network.Set(nil)
	node.network.Set([]string{"192.0.2.3"})
	told("192.0.2.3")
	if err := second.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
