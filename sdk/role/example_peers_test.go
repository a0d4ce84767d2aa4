package role_test

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/reeveproject/reeve/sdk/role"
)

// A role that serves gRPC to the instances of a role "ship" on other nodes. A handler finds out by role.PeerFromContext who calls.
func ExampleHost_Listen() {
	run := func(ctx context.Context, host *role.Host) error {
		listener, err := host.Listen(ctx, "light", role.AllowRoles("ship"))
		if err != nil {
			return err
		}
		server := grpc.NewServer(grpc.Creds(role.Credentials()))
		healthv1.RegisterHealthServer(server, healthv1.UnimplementedHealthServer{})
		defer context.AfterFunc(ctx, server.GracefulStop)()
		host.Ready()
		return server.Serve(listener)
	}
	role.Serve(role.Plugin{Name: "lighthouse", Version: "0.1.0", Roles: []role.Role{{Name: "lighthouse", Run: run}}})
}

// A role that serves HTTP to the instances of its own role on other nodes.
func ExampleHost_Listen_http() {
	run := func(ctx context.Context, host *role.Host) error {
		listener, err := host.Listen(ctx, "light")
		if err != nil {
			return err
		}
		server := &http.Server{ConnContext: role.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			peer, _ := role.PeerFromContext(r.Context())
			fmt.Fprintf(w, "hello, %s\n", peer.NodeID)
		})}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		host.Ready()
		return server.Serve(listener)
	}
	role.Serve(role.Plugin{Name: "lighthouse", Version: "0.1.0", Roles: []role.Role{{Name: "lighthouse", Run: run}}})
}

// A gRPC client of another role. Each connection goes to an instance that is healthy then; when it ends, gRPC connects again.
func ExampleHost_Dial() {
	run := func(ctx context.Context, host *role.Host) error {
		client, err := grpc.NewClient("passthrough:///lighthouse", grpc.WithTransportCredentials(role.Credentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return host.Dial(ctx, "lighthouse", "", "light")
			}))
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		if _, err := healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			return err
		}
		host.Ready()
		<-ctx.Done()
		return nil
	}
	role.Serve(role.Plugin{Name: "ship", Version: "0.1.0", Roles: []role.Role{{Name: "ship", Run: run}}})
}
