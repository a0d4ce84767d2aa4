package cluster_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/core/cluster"
	names "github.com/reeveproject/reeve/proto/identity"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// other is the own API of another node.
type other struct {
	nodev1.UnimplementedNodeServiceServer
	names []string
	// asked are the keys by which it was asked.
	asked event.Value[[]ed25519.PublicKey]
}

func (o *other) ListCurators(ctx context.Context, _ *nodev1.ListCuratorsRequest) (*nodev1.ListCuratorsResponse, error) {
	from, _ := peer.FromContext(ctx)
	key, err := names.PinnedKey(from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0])
	if err != nil {
		return nil, err
	}
	o.asked.Update(func(before []ed25519.PublicKey) []ed25519.PublicKey { return append(slices.Clip(before), key) })
	return &nodev1.ListCuratorsResponse{Curators: o.names}, nil
}

// serve serves at an address, by a certificate.
func (o *other) serve(m *many, address string, certificate *tls.Certificate) {
	m.t.Helper()
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequireAnyClientCert,
	})))
	nodev1.RegisterNodeServiceServer(server, o)
	listener, ended := m.net.listen(address), make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	m.down[address] = func() {
		server.Stop()
		if err := <-ended; err != nil {
			m.t.Errorf("another node: %v", err)
		}
	}
}

// A node that was off while all curators moved finds one by asking the nodes that it knew, of which most are gone, and one is somebody else: all in one round of questions, or in several.
func TestOtherNodesNameTheCurators(t *testing.T) {
	for _, gone := range []int{5, 20} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) { otherNodesNameTheCurators(t, gone) })
	}
}

func otherNodesNameTheCurators(t *testing.T, gone int) {
	withCurators(t, 1, func(t *testing.T, m *many) {
		file := filepath.Join(t.TempDir(), "nodes.json")
		moved := m.addresses[0]
		m.curators["former:1"] = newCurator(m.ca.curatorCertificate())
		m.up("former:1")
		theirs, stranger := newKey(t), newKey(t)
		directory := m.directory(7, "former:1")
		for i := range gone {
			directory.Directory.Nodes = append(directory.Directory.Nodes, &hostv1.DirectoryNode{NodeId: fmt.Sprintf("reeve-gone-%d", i), ApiAddress: fmt.Sprintf("gone%d:1", i)})
		}
		directory.Directory.Nodes = append(directory.Directory.Nodes,
			&hostv1.DirectoryNode{NodeId: nodeID(theirs), ApiAddress: "other:1"}, &hostv1.DirectoryNode{NodeId: "reeve-elsewhere", ApiAddress: "stranger:1"})
		m.curators["former:1"].view.Set(directory)
		m.again(func(c *cluster.Config) { c.Nodes, c.Known = file, func() []string { return []string{"former:1"} } })
		stop := m.run()
		m.at("former:1", "1")
		synctest.Wait() // until the nodes are kept
		stop()
		m.down["former:1"]()
		delete(m.down, "former:1")

		liar := &other{names: []string{"former:2", "nowhere"}}
		liar.serve(m, "stranger:1", m.ca.svid(stranger, 0, 900*time.Hour))
		knows := &other{names: []string{moved, "no port"}}
		knows.serve(m, "other:1", m.ca.svid(theirs, 0, 900*time.Hour))
		m.again(func(*cluster.Config) {})
		defer m.run()()
		m.at(moved, "2")
		synctest.Wait()
		if keys, _ := knows.asked.Get(); len(keys) == 0 || !m.key.Public().(ed25519.PublicKey).Equal(keys[0]) {
			t.Errorf("it was asked by %v", keys)
		}
		if keys, ok := liar.asked.Get(); ok {
			t.Errorf("who is not the node was asked by %v", keys)
		}
	})
}
