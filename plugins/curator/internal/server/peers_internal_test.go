package server

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// socket is a connection from an address. Nothing can be read from it, or written to it.
type socket struct {
	net.Conn
	from       *net.TCPAddr
	ended      atomic.Bool
	connection *peerConnection
}

var here = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}

func (s *socket) LocalAddr() net.Addr  { return here }
func (s *socket) RemoteAddr() net.Addr { return s.from }
func (s *socket) Close() error {
	s.ended.Store(true)
	return nil
}

func (s *socket) closed() bool { return s.ended.Load() }

// connects has somebody connect, and returns the connection.
func connects(t *testing.T, p *peers, host string, port int) *socket {
	t.Helper()
	s := &socket{from: &net.TCPAddr{IP: net.ParseIP(host), Port: port}}
	if s.connection = p.enter(s); s.connection == nil {
		t.Fatalf("%s is not let connect", s.from)
	}
	return s
}

func (s *socket) call() context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{Addr: s.connection.RemoteAddr(), LocalAddr: here})
}

// A node that is removed keeps no connection, however it came by it: long enough to be told, and no longer. The others keep theirs.
func TestConnectionsOfARemovedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		snapshots := new(event.Value[*cache.Snapshot])
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			p.follow(ctx, snapshots)
		}()
		say := func(state clusterv1.NodeState) {
			snapshots.Set(&cache.Snapshot{State: &store.State{Nodes: map[string]*clusterv1.NodeRecord{
				"a": {Id: "a", State: state}, "b": {Id: "b", State: clusterv1.NodeState_NODE_STATE_UP},
			}}})
			synctest.Wait()
		}
		node, second, other, owner := connects(t, p, "192.0.2.2", 1), connects(t, p, "192.0.2.2", 2), connects(t, p, "192.0.2.3", 1), connects(t, p, "192.0.2.4", 1)
		p.letIn(node.call(), "a")
		p.letIn(second.call(), "a")
		p.letIn(other.call(), "b")
		p.letIn(owner.call(), "")
		say(clusterv1.NodeState_NODE_STATE_UP)
		time.Sleep(time.Hour)
		if node.closed() || second.closed() || other.closed() || owner.closed() {
			t.Fatal("somebody who was let in is cut off")
		}
		say(clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
		if node.closed() {
			t.Error("a node that was removed is not told so")
		}
		// Let in by what was read before, and heard of afterwards.
		late := connects(t, p, "192.0.2.2", 3)
		p.letIn(late.call(), "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !node.closed() || !second.closed() || !late.closed() {
			t.Error("a node that was removed is still connected")
		}
		if other.closed() || owner.closed() {
			t.Error("others are cut off with it")
		}
		p.mu.Lock()
		if len(p.nodes) != 1 {
			t.Errorf("it is still known: %v", p.nodes)
		}
		p.mu.Unlock()
		cancel()
		<-followed
	})
}

// However many addresses they have, strangers have so many connections, of which the oldest go first. Who was let in stays.
func TestStrangersFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		node := connects(t, p, "192.0.2.2", 1)
		p.letIn(node.call(), "a")
		var strangers []*socket
		for n := range mostStrangers + 10 {
			strangers = append(strangers, connects(t, p, fmt.Sprintf("198.18.%d.%d", n/250, n%250), 1))
			time.Sleep(time.Millisecond)
		}
		p.mu.Lock()
		if len(p.by) != mostStrangers {
			t.Errorf("%d strangers are connected, and may be %d", len(p.by), mostStrangers)
		}
		p.mu.Unlock()
		for n, stranger := range strangers {
			if stranger.closed() != (n < 10) {
				t.Fatalf("stranger %d: closed %t", n, stranger.closed())
			}
		}
		if node.closed() {
			t.Error("a node is cut off by strangers")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.by) != 0 || len(p.strangers) != 0 {
			t.Errorf("%d strangers stay for ever", len(p.by))
		}
	})
}

// Every connection is counted once, as what its caller is known for, until it is closed; and the curator's own is not.
func TestConnectionsAreCounted(t *testing.T) {
	p := newPeers()
	open := make(map[metrics.Kind]int)
	p.counts = func(kind metrics.Kind, opened int) { open[kind] += opened }
	want := func(when string, stranger, node, operator, newcomer int) {
		t.Helper()
		counted := map[metrics.Kind]int{metrics.Stranger: stranger, metrics.Node: node, metrics.Operator: operator, metrics.Newcomer: newcomer}
		for _, kind := range metrics.Kinds {
			if open[kind] != counted[kind] {
				t.Errorf("%s: %d of kind %s are open, want %d", when, open[kind], kind, counted[kind])
			}
		}
	}
	var connections []*peerConnection
	var sockets []*socket
	for port := range 4 {
		s := connects(t, p, "192.0.2.2", 1+port)
		connections, sockets = append(connections, s.connection), append(sockets, s)
	}
	own := p.enter(&insideConnection{Conn: &socket{from: here}, name: "inside-1"})
	want("before anybody has called", 4, 0, 0, 0)
	p.letIn(sockets[0].call(), "a")
	p.letIn(sockets[1].call(), "")
	p.letInNewcomer(sockets[2].call(), "b")
	p.letIn(peer.NewContext(t.Context(), &peer.Peer{Addr: own.RemoteAddr(), LocalAddr: here}), "")
	want("when they have", 1, 1, 1, 1)
	p.letIn(sockets[0].call(), "a")
	want("when one has called again", 1, 1, 1, 1)
	for _, connection := range append(connections, own) {
		for range 2 {
			if err := connection.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want("when all are closed", 0, 0, 0, 0)
}
