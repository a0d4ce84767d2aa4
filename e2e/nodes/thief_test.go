package nodes_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// thief is somebody who has the disk of a node, and so all that it proves itself with.
type thief struct {
	nodeID      string
	nodeKey     ed25519.PrivateKey
	joinKey     ed25519.PrivateKey
	incarnation *clusterv1.Incarnation
	// node, member and role are the certificates of the node, of its member of the store and of its courier.
	node, member, role tls.Certificate
}

// steal reads what a node has on its disk, with the number that its next start would have.
func steal(t *testing.T, c *devcluster.Cluster, number int) *thief {
	t.Helper()
	directory := c.NodeDirectory(number)
	configuration, err := seal.NewStore(filepath.Join(directory, "system", "configuration.json"), seal.File{}).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var last struct {
		NodeID string `json:"node_id"`
		Number uint64 `json:"number"`
	}
	if err := storage.ReadDocument(filepath.Join(directory, "system", "incarnation.json"), 1, &last); err != nil {
		t.Fatal(err)
	}
	own := &thief{
		nodeID: configuration.NodeID(), nodeKey: configuration.NodeKey, joinKey: configuration.JoinKey,
		incarnation: &clusterv1.Incarnation{Number: last.Number + 1, Nonce: make([]byte, 16)},
	}
	_, _ = rand.Read(own.incarnation.Nonce) // never fails
	own.node = tls.Certificate{Certificate: chainIn(t, filepath.Join(directory, "data", "identity", "svid.pem")), PrivateKey: own.nodeKey}
	return own
}

// stealRoles reads what the roles of a node have there too.
func (own *thief) stealRoles(t *testing.T, c *devcluster.Cluster, number int) {
	t.Helper()
	roles := filepath.Join(c.NodeDirectory(number), "data", "roles")
	peer, courier := filepath.Join(roles, "consensus", "peer"), filepath.Join(roles, "courier", "svid.pem")
	var err error
	if own.member, err = tls.LoadX509KeyPair(filepath.Join(peer, "certificate.pem"), filepath.Join(peer, "key.pem")); err != nil {
		t.Fatal(err)
	}
	if own.role, err = tls.LoadX509KeyPair(courier, courier); err != nil {
		t.Fatal(err)
	}
}

// chainIn are the certificates in a file, DER.
func chainIn(t *testing.T, file string) (chain [][]byte) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		chain = append(chain, block.Bytes)
	}
	return chain
}

// careless is how one connects who only wants to be let in, and does not care to whom.
func careless(certificate tls.Certificate, protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: protocols, InsecureSkipVerify: true}
}

// curatorAt is a client of the curator at an address, which shows a certificate. from is the address from which it connects; empty: any.
func curatorAt(t *testing.T, address, from string, certificate tls.Certificate) *grpc.ClientConn {
	t.Helper()
	dialer := &net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(careless(certificate))), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// selfSigned is by what the holder of a key proves it.
func selfSigned(t *testing.T, key ed25519.PrivateKey) tls.Certificate {
	t.Helper()
	certificate, err := identity.SelfSigned(key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// asNode is the context of a call of the node's core.
func (own *thief) asNode(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, clusterv1.IncarnationHeader, own.incarnation.Header())
}
