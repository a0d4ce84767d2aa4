package role_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// named answers with the caller's name.
type named struct {
	healthv1.UnimplementedHealthServer
}

func (named) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	peer, ok := role.PeerFromContext(ctx)
	return nil, status.Errorf(codes.Aborted, "%s %t", peer, ok)
}

func TestGRPC(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	listener := listen(t, cluster.Host(0).Instance(t, "lighthouse"), role.AllowRoles("ship"))
	server := grpc.NewServer(grpc.Creds(role.Credentials()))
	healthv1.RegisterHealthServer(server, named{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	defer func() { server.Stop(); <-served }()
	ship := cluster.Host(1).Instance(t, "ship")
	client, err := grpc.NewClient("passthrough:///lighthouse", grpc.WithTransportCredentials(role.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ship.Dial(ctx, "lighthouse", "", "wire") }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	_, err = healthv1.NewHealthClient(client).Check(within(t, soon), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if want := "ship on " + cluster.Host(1).NodeID() + " true"; status.Convert(err).Message() != want {
		t.Errorf("the server takes the caller for: %v", err)
	}
	// Credentials are no way around Dial.
	plain, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(role.Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	_, err = healthv1.NewHealthClient(plain).Check(within(t, soon), &healthv1.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "Host.Dial") {
		t.Errorf("a connection of another make: %v", err)
	}
}

func TestHTTP(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	host := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, host)
	server := &http.Server{ConnContext: role.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := role.PeerFromContext(r.Context())
		fmt.Fprint(w, peer, " ", ok)
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	other := cluster.Host(1).Instance(t, "lighthouse")
	awaitEndpoint(t, other, cluster.Host(0).NodeID(), "lighthouse", "wire")
	awaitAssigned(t, host, cluster.Host(1).NodeID(), "lighthouse")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return other.Dial(ctx, "lighthouse", "", "wire")
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://lighthouse/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if want := "lighthouse on " + cluster.Host(1).NodeID() + " true"; string(got) != want || err != nil {
		t.Errorf("the server takes the caller for %q (%v)", got, err)
	}
}

func TestPeerOfOthers(t *testing.T) {
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if peer, ok := role.PeerOf(one); ok {
		t.Errorf("a pipe has the peer %v", peer)
	}
	if peer, ok := role.PeerFromContext(role.ConnContext(t.Context(), one)); ok {
		t.Errorf("a pipe's context has the peer %v", peer)
	}
}

// serveWire is a role that sends back what ships send.
func serveWire(ctx context.Context, host *role.Host) error {
	listener, err := host.Listen(ctx, "wire", role.AllowRoles("ship"))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	host.Ready()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(conn, conn) // until the client ends
		}()
	}
}

// A plugin's process listens, and an instance on another node of the test reaches it. Its connections end with it.
func TestProcessThatListens(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	process := launch(t, "probe")
	if err := process.Start(cluster.Host(0), "wire", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	conn := dial(t, cluster.Host(1).Instance(t, "ship"), "wire", "", "")
	mustEcho(t, conn)
	if peer, _ := role.PeerOf(conn); peer != (role.Peer{NodeID: cluster.Host(0).NodeID(), Role: "wire"}) {
		t.Errorf("the peer is %v", peer)
	}
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	mustEnd(t, conn)
	wantExit(t, process, 0)
}
