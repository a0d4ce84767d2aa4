package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/held"
)

const (
	// connectionsPerPeer is how many connections one address may have open. A node needs one or two, and a command line one; many of them may be behind
	// one address. It is what keeps one machine from taking all file descriptors of the process.
	connectionsPerPeer = 256
	// strangersPerPeer is how many of them may be connections on which nobody was let in yet, and strangerBytes how much is read from one of those: the
	// largest request with what is around it. gRPC reads a request before anybody can ask who calls, so these, and not the bound of one request, are what
	// keeps one who proves nothing from filling the memory: he has 64 times 2 MiB of it, and not as much for each of the streams of each connection.
	strangersPerPeer = 64
	strangerBytes    = maxRequest + 128<<10
	// mostStrangers is how many there may be from all addresses together, of which somebody may have many: they cost memory and descriptors before anything is known of them.
	mostStrangers = 2048
	// strangerFor is how long such a connection may last: longer than a call waits for the store before it is known who calls.
	strangerFor = 30 * time.Second
	// lastWord is how long the connections of a node that was removed stay: long enough for the answer that tells it so.
	lastWord = time.Second
)

// peers counts the connections of a server, by address.
type peers struct {
	mu        sync.Mutex
	open      map[string]int                          // connections by host
	strangers map[string]int                          // those of them on which nobody was let in yet, by network
	by        map[*peerConnection]struct{}            // strangers
	nodes     map[string]map[*peerConnection]struct{} // connections on which a node was let in, by its ID
	// Calls that began on a connection of a stranger and are under way, by network, and all of them.
	strangerCalls    map[string]int
	allStrangerCalls int
	held             *held.Counts // what is held of requests and answers
	turns            turns
	state            *store.State // the newest that was seen; nil: none was
	failing          time.Time    // since when connections cannot be accepted; zero: they can
	failed           time.Time    // when that was last seen
	failure          error

	// How long connections stay on which it was said that a node was removed, or that somebody is nobody.
	lastWord, refusedFor time.Duration

	now    func() time.Time                    // by which certificates are valid
	counts func(kind metrics.Kind, opened int) // is told of connections by the kind of the caller; nil: nobody is
}

func newPeers() *peers {
	return &peers{
		open: make(map[string]int), strangers: make(map[string]int), by: make(map[*peerConnection]struct{}), nodes: make(map[string]map[*peerConnection]struct{}),
		strangerCalls: make(map[string]int), now: time.Now, held: held.New(bounds), lastWord: lastWord, refusedFor: refusedFor,
	}
}

// follow closes the connections of nodes that are removed, until ctx is done. Their calls are refused by then (internal/auth), and nothing is left to be said on them.
func (p *peers) follow(ctx context.Context, snapshots *event.Value[*cache.Snapshot]) {
	for watcher := snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.state = snapshot.State
		for id, connections := range p.nodes {
			if !removed(p.state, id) {
				continue
			}
			for connection := range connections {
				connection.leaveSoon()
			}
		}
		p.mu.Unlock()
	}
}

func removed(state *store.State, node string) bool {
	return state != nil && state.Nodes[node].GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
}

// over returns a listener that closes connections of an address beyond so many: of strangers the oldest ones, and all of them after a while.
func (p *peers) over(listener net.Listener) net.Listener {
	return &peerListener{Listener: listener, peers: p}
}

type peerListener struct {
	net.Listener
	peers *peers
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		l.peers.accepted(err)
		if err != nil {
			return nil, err
		}
		if connection := l.peers.enter(accepted); connection != nil {
			return connection, nil
		}
		_ = accepted.Close()
	}
}

const (
	// refusingFor is how long connections may not be accepted, as when the process has no descriptors left, before that is no passing matter.
	refusingFor = 10 * time.Second
	// refusingEvery is how often at least a server tries again that could not accept: gRPC's does within a second.
	refusingEvery = 3 * time.Second
)

// accepted takes note of whether connections can be accepted. A listener that was closed is no listener any more.
func (p *peers) accepted(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		p.failing = time.Time{}
	case !errors.Is(err, net.ErrClosed):
		if p.failing.IsZero() || now.Sub(p.failed) > refusingEvery {
			p.failing = now
		}
		p.failed, p.failure = now, err
	}
}

// refusing returns why connections have not been accepted for some time, or nil.
func (p *peers) refusing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing.IsZero() || time.Since(p.failed) > refusingEvery || time.Since(p.failing) < refusingFor {
		return nil
	}
	return fmt.Errorf("connections to the cluster API have not been accepted for %v: %w", time.Since(p.failing).Round(time.Second), p.failure)
}

// enter takes a connection on; nil: its address has too many on which somebody was let in.
func (p *peers) enter(accepted net.Conn) *peerConnection {
	remote := accepted.RemoteAddr().String()
	host := remote
	if name, _, err := net.SplitHostPort(remote); err == nil {
		host = name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[host] >= connectionsPerPeer {
		return nil
	}
	connection := &peerConnection{Connection: p.held.Connection(accepted, ""), peers: p, host: host, network: audit.Network(remote), since: time.Now(), left: strangerBytes}
	// The oldest one goes, and not the newcomer: who may come in is let in within moments, and must not be kept out by those who hold what they have.
	switch {
	case p.strangers[connection.network] >= strangersPerPeer:
		p.end(p.oldest(func(other *peerConnection) bool { return other.network == connection.network }))
	case len(p.by) >= mostStrangers:
		p.end(p.oldest(func(*peerConnection) bool { return true }))
	}
	p.open[host]++
	p.strangers[connection.network]++
	p.by[connection] = struct{}{}
	p.count(connection, metrics.Stranger)
	connection.hurry = time.AfterFunc(strangerFor, func() { _ = connection.Close() })
	return connection
}

// oldest returns the stranger that has been there for the longest time, of those that are meant. The caller holds the lock, and knows that there is one.
func (p *peers) oldest(meant func(*peerConnection) bool) (oldest *peerConnection) {
	for connection := range p.by {
		if meant(connection) && (oldest == nil || connection.since.Before(oldest.since)) {
			oldest = connection
		}
	}
	return oldest
}

// letIn takes note of that the caller of a call was let in: its connection is no stranger's any more. node is the node that it is; empty: it is none. Whoever calls next on
// that connection is the same, by the certificate of its handshake.
func (p *peers) letIn(ctx context.Context, node string) {
	kind := metrics.Node
	if node == "" {
		kind = metrics.Operator
	}
	p.letInAs(ctx, kind, node)
}

// letInNewcomer does so for a machine that comes. node is the node that it is to be.
func (p *peers) letInNewcomer(ctx context.Context, node string) {
	p.letInAs(ctx, metrics.Newcomer, node)
	belongs(ctx, "machine "+node)
}

func (p *peers) letInAs(ctx context.Context, kind metrics.Kind, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	connection := p.stranger(ctx)
	if connection == nil {
		return
	}
	p.know(connection)
	p.count(connection, kind)
	if node == "" {
		return
	}
	connection.node = node
	if p.nodes[node] == nil {
		p.nodes[node] = make(map[*peerConnection]struct{})
	}
	p.nodes[node][connection] = struct{}{}
	if removed(p.state, node) {
		connection.leaveSoon() // since it was let in
	}
}

// know ends what strangers are bound by. The caller holds the lock.
func (p *peers) know(connection *peerConnection) {
	if connection.known {
		return
	}
	connection.known = true
	connection.hurry.Stop()
	delete(p.by, connection)
	less(p.strangers, connection.network)
	p.forgetCalls(connection, connection.calls)
}

func (p *peers) leave(connection *peerConnection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.know(connection)
	p.count(connection, "")
	less(p.open, connection.host)
	connection.hurry.Stop()
	if of := p.nodes[connection.node]; of != nil {
		if delete(of, connection); len(of) == 0 {
			delete(p.nodes, connection.node)
		}
	}
}

// count has a connection be of another kind; empty: of none any more. The curator's own, by which it looks whether it answers, is nobody's. The caller holds the lock.
func (p *peers) count(connection *peerConnection, kind metrics.Kind) {
	if _, own := connection.Conn.RemoteAddr().(insideAddress); own || p.counts == nil {
		return
	}
	if connection.kind != "" {
		p.counts(connection.kind, -1)
	}
	if connection.kind = kind; kind != "" {
		p.counts(kind, 1)
	}
}

func less(counted map[string]int, host string) {
	if counted[host]--; counted[host] == 0 {
		delete(counted, host)
	}
}

// took reports whether a connection may go on after so many bytes were read from it.
func (p *peers) took(connection *peerConnection, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !connection.known {
		connection.left -= n
	}
	return !connection.ended && (connection.known || connection.left >= 0)
}

// peerConnection is counted until it is closed.
type peerConnection struct {
	*held.Connection
	peers *peers
	host  string
	// network is what a stranger is counted by: the host, or the network of an IPv6 one, of which a machine has all addresses.
	network string
	since   time.Time
	hurry   *time.Timer
	once    sync.Once

	// Guarded by the lock of peers: whether somebody was let in on it, or it is no stranger's for it ends, and how many bytes may be read until then.
	known bool
	left  int
	// ended says that it is being closed: nothing is read from it any more.
	ended bool
	// calls is how many that began on it before are under way, and refusal what a stranger was told on it; expects says that the key is that of somebody in the cluster, once it was looked
	// at. They are guarded too.
	calls           int
	refusal         error
	looked, expects bool
	// node is whose it is, if it is a node's; leaving says that it is closed soon. Both are guarded too.
	node    string
	leaving bool
	// kind is what it is counted as; empty: it is not. It is guarded too.
	kind metrics.Kind
}

// peerAddress is the address of whoever is at the other end of a connection. By it a call is known to be on that connection, and not on an earlier one of the same address that has not left yet.
type peerAddress struct {
	held.Address
	connection *peerConnection
}

// RemoteAddr implements net.Conn.
func (c *peerConnection) RemoteAddr() net.Addr {
	return peerAddress{c.Connection.RemoteAddr().(held.Address), c}
}

// leaveSoon has the connection closed when the last word was said on it. The caller holds the lock.
func (c *peerConnection) leaveSoon() {
	if !c.leaving {
		c.leaving = true
		c.hurry = time.AfterFunc(c.peers.lastWord, func() { _ = c.Close() })
	}
}

var errTooMuch = errors.New("it has sent more than anybody needs to before being let in")

// Read implements net.Conn.
func (c *peerConnection) Read(into []byte) (int, error) {
	n, err := c.Connection.Read(into)
	if !c.peers.took(c, n) {
		return 0, errTooMuch
	}
	return n, err
}

// Close implements net.Conn.
func (c *peerConnection) Close() error {
	defer c.once.Do(func() { c.peers.leave(c) })
	return c.Connection.Close()
}
