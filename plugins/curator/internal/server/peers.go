package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
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
	// strangerFor is how long such a connection may last: longer than a call waits for the store before it is known who calls.
	strangerFor = 30 * time.Second
)

// peers counts the connections of a server, by address.
type peers struct {
	mu        sync.Mutex
	open      map[string]int           // connections by host
	strangers map[string]int           // those of them on which nobody was let in yet
	by        map[ends]*peerConnection // strangers
	failing   time.Time                // since when connections cannot be accepted; zero: they can
	failed    time.Time                // when that was last seen
	failure   error
}

// ends are both ends of a connection: from one port, a peer may have a connection to each of several listeners.
type ends struct{ local, remote string }

func newPeers() *peers {
	return &peers{open: make(map[string]int), strangers: make(map[string]int), by: make(map[ends]*peerConnection)}
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
	between := ends{local: accepted.LocalAddr().String(), remote: accepted.RemoteAddr().String()}
	host := between.remote
	if name, _, err := net.SplitHostPort(between.remote); err == nil {
		host = name
	}
	connection := &peerConnection{Conn: accepted, peers: p, host: host, ends: between, since: time.Now(), left: strangerBytes}
	var ended *peerConnection
	defer func() {
		if ended != nil {
			_ = ended.Close()
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[host] >= connectionsPerPeer {
		return nil
	}
	if p.strangers[host] >= strangersPerPeer {
		// The oldest one, and not the newcomer: who may come in is let in within moments, and must not be kept out by those who hold what they have.
		ended = p.oldest(host)
		p.know(ended)
	}
	p.open[host]++
	p.strangers[host]++
	p.by[between] = connection
	connection.hurry = time.AfterFunc(strangerFor, func() { _ = connection.Close() })
	return connection
}

// oldest returns the stranger of a host that has been there for the longest time. The caller holds the lock.
func (p *peers) oldest(host string) (oldest *peerConnection) {
	for _, connection := range p.by {
		if connection.host == host && (oldest == nil || connection.since.Before(oldest.since)) {
			oldest = connection
		}
	}
	return oldest
}

// letIn takes note of that the caller of a call was let in: its connection is no stranger's any more.
func (p *peers) letIn(ctx context.Context) {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil || from.LocalAddr == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if connection := p.by[ends{local: from.LocalAddr.String(), remote: from.Addr.String()}]; connection != nil {
		p.know(connection)
	}
}

// know ends what strangers are bound by. The caller holds the lock.
func (p *peers) know(connection *peerConnection) {
	if connection.known {
		return
	}
	connection.known = true
	connection.hurry.Stop()
	delete(p.by, connection.ends)
	less(p.strangers, connection.host)
}

func (p *peers) leave(connection *peerConnection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.know(connection)
	less(p.open, connection.host)
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
	return connection.known || connection.left >= 0
}

// peerConnection is counted until it is closed.
type peerConnection struct {
	net.Conn
	peers *peers
	host  string
	ends  ends
	since time.Time
	hurry *time.Timer
	once  sync.Once

	// Guarded by the lock of peers: whether somebody was let in on it, and how many bytes may be read until then.
	known bool
	left  int
}

var errStranger = errors.New("it has sent more than anybody needs to before being let in")

// Read implements net.Conn.
func (c *peerConnection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if !c.peers.took(c, n) {
		return 0, errStranger
	}
	return n, err
}

// Close implements net.Conn.
func (c *peerConnection) Close() error {
	defer c.once.Do(func() { c.peers.leave(c) })
	return c.Conn.Close()
}
