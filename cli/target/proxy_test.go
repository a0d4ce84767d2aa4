package target_test

import (
	"net"
	"os"
	"testing"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// notLoopback is an address which leads to this machine and is no loopback address, to which no proxy is ever asked to connect.
func notLoopback(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("0.0.0.0", port)
}

// A proxy that the environment names changes nothing for connections to curators, to nodes and to roles: here nothing listens where it would be.
func TestNoProxy(t *testing.T) {
	if os.Getenv("HTTPS_PROXY") == "" {
		t.Fatal("no proxy is set")
	}
	r := newRig(t)
	options := r.byAddress()
	options.Address = notLoopback(t, options.Address)
	r.login(options, target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	options = r.byAddress()
	options.Address, options.OwnerKeyFile = notLoopback(t, options.Address), r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	if err := list(t.Context(), cluster); err != nil {
		t.Errorf("the curator: %v", err)
	}

	r.apis[r.b] = notLoopback(t, r.apis[r.b])
	r.report(r.b)
	own, err := cluster.NodeAPI(t.Context(), target.Node{ID: nodeB})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.GetStatus(t.Context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("the node: %v", err)
	}

	certificate, err := r.a.RoleCertificate(t.Context(), "consensus")
	if err != nil {
		t.Fatal(err)
	}
	served := r.serveTLS(certificate, func(server *grpc.Server) { nodev1.RegisterNodeServiceServer(server, api{rig: r, id: nodeA}) })
	conn, err := cluster.RoleOn(t.Context(), "consensus", nodeA, notLoopback(t, served))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodev1.NewNodeServiceClient(conn).GetStatus(t.Context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("the role: %v", err)
	}
}
