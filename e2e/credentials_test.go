package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// caFile writes the certificates of the cluster's CA to a file, as the node's own API gives them to whoever may open its socket.
func caFile(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	run, err := filepath.EvalSymlinks(c.Path("run"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(run, "node.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := nodev1.NewNodeServiceClient(conn).GetStatus(t.Context(), &nodev1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, certificate := range answer.GetStatus().GetCluster().GetCaCertificates() {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})...)
	}
	if len(text) == 0 {
		t.Fatal("the node does not know the cluster's CA")
	}
	file := filepath.Join(c.Home, "ca.pem")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeKey writes a new key to a file that everybody can read.
func writeKey(t *testing.T, file string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readKey reads the owner's key of a cluster.
func readKey(t *testing.T, c *devcluster.Cluster) ed25519.PrivateKey {
	t.Helper()
	return devcluster.ReadKey(t, c.Path("owner.key"))
}

// listeners is how many times listen was called.
var listeners atomic.Int32

// listen takes a free port of the loopback interface until the test ends or close is called.
func listen(t *testing.T) (address string, close func()) {
	t.Helper()
	// No other test uses that loopback address, so that the port stays free between the listener's end and the start of who is to have it.
	n := listeners.Add(1)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.9.%d.%d:0", n/250, 1+n%250))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String(), func() { _ = listener.Close() }
}
