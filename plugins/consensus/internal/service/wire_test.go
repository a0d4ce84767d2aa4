package service_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// directory is what the members find each other by.
type directory struct {
	mu     sync.Mutex
	places map[string]string
	// follows is what nodes follow; a node that is not in it follows no store yet.
	follows map[string]store.Generation
}

func (d *directory) follow(state *consensusv1.MemberState, nodes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range nodes {
		d.follows[node] = store.Generation{Number: state.GetGeneration(), ID: state.GetGenerationId()}
	}
}

// wire is a service.Network over TCP, where who connects says who it is: that this is proved is the SDK's part.
type wire struct {
	node      string
	directory *directory
	addresses event.Value[[]string]
	looks     atomic.Int64 // how often the directory was read, which every call to all does once
}

func (w *wire) Listen(context.Context) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.directory.mu.Lock()
	defer w.directory.mu.Unlock()
	w.directory.places[w.node] = listener.Addr().String()
	return listener, nil
}

func (w *wire) Dial(ctx context.Context, node string) (net.Conn, error) {
	w.directory.mu.Lock()
	place := w.directory.places[node]
	w.directory.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", place)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, w.node+"\n")
	return conn, err
}

func (w *wire) Credentials() credentials.TransportCredentials { return wireCredentials{} }

func (w *wire) Caller(ctx context.Context) (string, bool) {
	caller, _ := peer.FromContext(ctx)
	info, ok := caller.AuthInfo.(wireInfo)
	return info.node, ok && info.node != "stranger"
}

func (w *wire) Nodes() []string {
	w.looks.Add(1)
	w.directory.mu.Lock()
	defer w.directory.mu.Unlock()
	var nodes []string
	for node := range w.directory.places {
		if node != w.node {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (w *wire) Follows() (store.Generation, bool) {
	w.directory.mu.Lock()
	defer w.directory.mu.Unlock()
	follows, known := w.directory.follows[w.node]
	return follows, known
}

func (w *wire) Peers() []string { return nil }

func (w *wire) Addresses() *event.Value[[]string] { return &w.addresses }

type wireInfo struct {
	credentials.CommonAuthInfo
	node string
}

func (wireInfo) AuthType() string { return "test" }

type wireCredentials struct{}

func (wireCredentials) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, wireInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func (wireCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	reader := bufio.NewReaderSize(conn, 16)
	var name []byte
	for {
		one, err := reader.ReadByte()
		if err != nil {
			return nil, nil, err
		}
		if one == '\n' {
			break
		}
		name = append(name, one)
	}
	info := wireInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, node: string(name)}
	return &buffered{Conn: conn, reader: reader}, info, nil
}

type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

func (wireCredentials) Info() credentials.ProtocolInfo            { return credentials.ProtocolInfo{} }
func (c wireCredentials) Clone() credentials.TransportCredentials { return c }
func (wireCredentials) OverrideServerName(string) error           { return nil }
