package node

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/ticket"
	"github.com/reeveproject/reeve/sdk/event"
)

const foreignCluster = "00112233445566778899aabbccddeeff"

// elsewhere is a cluster of which a node of a test is no member yet: the service that takes it in, over TLS, as a curator serves it.
type elsewhere struct {
	clusterv1.UnimplementedEnrolmentServiceServer
	clusterv1.UnimplementedNodeServiceServer

	t       *testing.T
	address string
	ca      *x509.Certificate
	caKey   ed25519.PrivateKey
	secret  []byte
	state   event.Value[clusterv1.NodeState]
	drained event.Value[bool]
	// reported is the last report of the node.
	reported event.Value[*clusterv1.NodeStatus]
	// directory has the nodes that have reported, and the node of the curator if a test put it there.
	directory event.Value[*hostv1.Directory]
	// removed is the reason of the tombstone; empty: there is none.
	removed event.Value[string]

	server   *grpc.Server
	listener net.Listener
	serving  sync.WaitGroup

	mu         sync.Mutex
	registered []*clusterv1.RegisterRequest
	committed  []*clusterv1.CommitRequest
	// plugins are the catalog entries of the node's roles.
	plugins []*clusterv1.PluginRecord
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	e := &elsewhere{t: t, secret: bytes.Repeat([]byte{7}, ticket.SecretSize)}
	var public ed25519.PublicKey
	public, e.caKey, _ = ed25519.GenerateKey(nil)
	domain := names.TrustDomain(foreignCluster)
	e.ca = e.sign(&x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{names.ClusterURI(domain)},
	}, public)
	serverPublic, serverKey, _ := ed25519.GenerateKey(nil)
	leaf := e.sign(&x509.Certificate{DNSNames: []string{names.CuratorName(domain)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, serverPublic)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw, e.ca.Raw}, PrivateKey: serverKey}},
	})))
	clusterv1.RegisterEnrolmentServiceServer(server, e)
	clusterv1.RegisterNodeServiceServer(server, e)
	e.server = server
	e.move()
	t.Cleanup(func() {
		server.Stop()
		e.serving.Wait()
	})
	return e
}

// move has the curator be at another address. Connections that there are stay.
func (e *elsewhere) move() {
	e.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	if e.listener != nil {
		_ = e.listener.Close()
	}
	e.listener, e.address = listener, listener.Addr().String()
	e.serving.Go(func() { _ = e.server.Serve(listener) })
}

func (e *elsewhere) sign(template *x509.Certificate, public ed25519.PublicKey) *x509.Certificate {
	e.t.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := e.ca
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, e.caKey)
	if err != nil {
		e.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		e.t.Fatal(err)
	}
	return certificate
}

// ticket is the text of a ticket with an ID.
func (e *elsewhere) ticket(id string) string {
	e.t.Helper()
	pin := sha256.Sum256(e.ca.RawSubjectPublicKeyInfo)
	text, err := ticket.Encode(&clusterv1.TicketText{TicketId: id, Secret: e.secret, ClusterId: foreignCluster, CaPins: [][]byte{pin[:]}, Curators: []string{e.address}})
	if err != nil {
		e.t.Fatal(err)
	}
	return text
}

// record is the node's, by its key.
func (e *elsewhere) record(key ed25519.PublicKey) *clusterv1.NodeRecord {
	drained, _ := e.drained.Get()
	return &clusterv1.NodeRecord{Id: names.NodeID(key), PublicKey: key, State: clusterv1.NodeState_NODE_STATE_UP, Drained: drained, Roles: []*clusterv1.RoleAssignment{
		{Role: "api", Configuration: e.registered[0].GetRoles()[0].GetConfiguration(), Generation: 1},
	}}
}

func (e *elsewhere) Watch(_ *clusterv1.WatchRequest, stream grpc.ServerStreamingServer[clusterv1.WatchResponse]) error {
	drains, removals, directories := e.drained.Watch(), e.removed.Watch(), e.directory.Watch()
	for revision := uint64(1); ; revision++ {
		key, err := e.caller(stream.Context())
		if err != nil {
			return err
		}
		_, _ = drains.Latest()
		directory, _ := directories.Latest()
		e.mu.Lock()
		answer := &clusterv1.WatchResponse{
			Revision: revision, Node: e.record(key), Plugins: e.plugins, Directory: &hostv1.Directory{Nodes: directory.GetNodes()}, CaCertificates: [][]byte{e.ca.Raw}, OwnerPublicKey: make([]byte, 32),
		}
		e.mu.Unlock()
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-drains.Changed():
		case <-directories.Changed():
		case <-removals.Changed():
			_, _ = removals.Latest()
		}
	}
}

func (e *elsewhere) ReportStatus(ctx context.Context, request *clusterv1.ReportStatusRequest) (*clusterv1.ReportStatusResponse, error) {
	key, err := e.caller(ctx)
	if err != nil {
		return nil, err
	}
	e.reported.Set(request.GetStatus())
	e.enter(&hostv1.DirectoryNode{NodeId: names.NodeID(key), ApiAddress: request.GetStatus().GetApiAddress()})
	return &clusterv1.ReportStatusResponse{}, nil
}

// enter puts a node into the directory.
func (e *elsewhere) enter(node *hostv1.DirectoryNode) {
	e.directory.Update(func(before *hostv1.Directory) *hostv1.Directory {
		others := slices.DeleteFunc(slices.Clone(before.GetNodes()), func(n *hostv1.DirectoryNode) bool { return n.GetNodeId() == node.GetNodeId() })
		return &hostv1.Directory{Nodes: append(others, node)}
	})
}

func (e *elsewhere) IssueSVID(ctx context.Context, _ *clusterv1.IssueSVIDRequest) (*clusterv1.IssueSVIDResponse, error) {
	key, err := e.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &clusterv1.IssueSVIDResponse{Svid: [][]byte{e.svid(key).Raw}, CaCertificates: [][]byte{e.ca.Raw}}, nil
}

func (e *elsewhere) svid(key ed25519.PublicKey) *x509.Certificate {
	return e.sign(&x509.Certificate{URIs: []*url.URL{names.NodeURI(names.TrustDomain(foreignCluster), names.NodeID(key))}}, key)
}

func (e *elsewhere) Heartbeat(ctx context.Context, _ *clusterv1.HeartbeatRequest) (*clusterv1.HeartbeatResponse, error) {
	if _, err := e.caller(ctx); err != nil {
		return nil, err
	}
	carried, _ := metadata.FromIncomingContext(ctx)
	if len(carried.Get(clusterv1.IncarnationHeader)) != 1 {
		return nil, status.Error(codes.InvalidArgument, "no incarnation")
	}
	return &clusterv1.HeartbeatResponse{TtlSeconds: 10}, nil
}

// caller is the key of who calls, as its certificate proves; the tombstone is shown to it.
func (e *elsewhere) caller(ctx context.Context) (ed25519.PublicKey, error) {
	p, _ := peer.FromContext(ctx)
	leaf := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
	key, _ := leaf.PublicKey.(ed25519.PublicKey)
	// By a certificate of its own, or by its SVID.
	if _, err := names.PinnedKey(leaf); err != nil && leaf.CheckSignatureFrom(e.ca) != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if reason, _ := e.removed.Get(); reason != "" {
		answer, err := status.New(codes.PermissionDenied, "removed").WithDetails(&clusterv1.NodeRemoved{NodeId: names.NodeID(key), Reason: reason})
		return nil, errors.Join(err, answer.Err())
	}
	return key, nil
}

func (e *elsewhere) Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	key, err := e.caller(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if request.GetTicketId() != "00000000000000aa" || !bytes.Equal(request.GetTicketSecret(), e.secret) {
		return nil, status.Error(codes.Unauthenticated, "no such ticket")
	}
	e.registered = append(e.registered, request)
	if len(e.registered) == 1 {
		e.state.Set(clusterv1.NodeState_NODE_STATE_NEW)
	}
	return &clusterv1.RegisterResponse{Node: &clusterv1.NodeRecord{Id: names.NodeID(key)}}, nil
}

func (e *elsewhere) Await(_ *clusterv1.AwaitRequest, stream grpc.ServerStreamingServer[clusterv1.AwaitResponse]) error {
	states, removals := e.state.Watch(), e.removed.Watch()
	for {
		if _, err := e.caller(stream.Context()); err != nil {
			return err
		}
		state, _ := states.Latest()
		if err := stream.Send(&clusterv1.AwaitResponse{State: state, Curators: []string{e.address}}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-states.Changed():
		case <-removals.Changed():
			_, _ = removals.Latest()
		}
	}
}

func (e *elsewhere) Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	key, err := e.caller(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.committed = append(e.committed, request)
	return &clusterv1.CommitResponse{
		Node: e.record(key), Plugins: e.plugins, CaCertificates: [][]byte{e.ca.Raw}, NodeSvid: [][]byte{e.svid(key).Raw}, OwnerPublicKey: make([]byte, 32), Curators: []string{e.address},
		ClusterUser: "keeper",
	}, nil
}

// newcomer is a node that comes into a cluster that there is, with the role "api", by a ticket in a file.
func newNewcomer(t *testing.T, e *elsewhere) (a *alive, ticketFile string) {
	t.Helper()
	a = newAlive(t, plain())
	ticketFile = filepath.Join(filepath.Dir(a.parameters.GetDirectories().GetSystem()), "ticket")
	if err := os.WriteFile(ticketFile, []byte(e.ticket("00000000000000aa")), 0o600); err != nil {
		t.Fatal(err)
	}
	a.parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{
		From:   &nodev1.Register_TicketFile{TicketFile: ticketFile},
		Labels: map[string]string{"rack": "7"},
		Roles:  []*nodev1.BootstrapRole{{Role: "api", Configuration: plugintest.Configuration{Do: "ready", Write: "hello"}.String()}},
	}}
	variant := plugintest.Variant{Name: "band", Roles: []plugintest.Role{
		{Name: "store", Provides: []string{roles.CapabilityConsensus}}, {Name: "api", Provides: []string{roles.CapabilityCluster}},
	}}
	built.executable.Write(t, a.parameters.GetPlugins()[0].GetPath(), variant)
	content, err := os.ReadFile(a.parameters.GetPlugins()[0].GetPath())
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(content)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plugins = []*clusterv1.PluginRecord{{
		Name: "band", Version: "1.0.0", Digests: map[string]string{store.Platform: "sha256:" + hex.EncodeToString(digest[:])},
		Manifest: &rolev1.Manifest{Name: "band", Roles: []*rolev1.RoleManifest{{Name: "api", StartsFromCache: true}}},
	}}
	return a, ticketFile
}

func isIn(state hostv1.MembershipState, reason string) func(*nodev1.Status) bool {
	return func(s *nodev1.Status) bool {
		return s.GetMembership().GetState() == state && strings.Contains(s.GetMembership().GetReason(), reason)
	}
}
