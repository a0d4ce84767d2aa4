package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// balancer connects programs of this node to any API server: a TCP port of the machine's own, behind which TLS goes through from end to end. A server that cannot be reached is passed over, and is
// tried last for a while; connections to one that the directory no longer names are closed, so that clients look for another one.
type balancer struct {
	log      hclog.Logger
	listener net.Listener

	mu      sync.Mutex
	servers []string
	next    int
	bad     map[string]time.Time
	open    map[net.Conn]string
	changed chan struct{}

	serving sync.WaitGroup
}

const (
	// dialTime is how long an API server may take to accept a connection.
	dialTime = 2 * time.Second
	// badTime is for how long a server that could not be reached is tried after the others.
	badTime = 10 * time.Second
	// maxConnections is how many there may be at a time: each takes two descriptors. kubelet and kube-proxy have a few; anybody on the node can connect.
	maxConnections = 1024
	// acceptRetry is the wait before the next connection is accepted when one could not be.
	acceptRetry = 100 * time.Millisecond
	// serverTime is how long a connection waits for any server to be known.
	serverTime = 10 * time.Second
)

func newBalancer(address string, log hclog.Logger) (*balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &balancer{log: log, listener: listener, bad: make(map[string]time.Time), open: make(map[net.Conn]string), changed: make(chan struct{})}, nil
}

// set says where the API servers are.
func (b *balancer) set(servers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := make(map[string]bool)
	for _, server := range servers {
		known[server] = true
	}
	b.servers = servers
	close(b.changed)
	b.changed = make(chan struct{})
	if len(servers) == 0 {
		return // nobody knows of any: what works may go on
	}
	for conn, server := range b.open {
		if !known[server] {
			_ = conn.Close()
		}
	}
}

// run serves until ctx is done, and has closed everything when it returns.
func (b *balancer) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = b.listener.Close() })
	defer stop()
	room := make(chan struct{}, maxConnections)
	for ctx.Err() == nil {
		conn, err := b.listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				// Such as no descriptor for another connection: that passes, and nothing else connects the programs of this node.
				b.log.Warn("a connection to an API server is not accepted", "error", err)
				sleep(ctx, acceptRetry)
			}
			continue
		}
		select {
		case room <- struct{}{}:
			b.serving.Go(func() {
				defer func() { <-room }()
				b.serve(ctx, conn)
			})
		default:
			b.log.Warn("too many connections to API servers", "most", maxConnections)
			_ = conn.Close()
		}
	}
	_ = b.listener.Close()
	b.mu.Lock()
	for conn := range b.open {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.serving.Wait()
}

func (b *balancer) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, address, err := b.dial(ctx)
	if err != nil {
		b.log.Debug("no API server can be reached", "error", err)
		return
	}
	defer func() { _ = server.Close() }()
	if !b.track(ctx, server, address, client) {
		return
	}
	defer b.forget(server, client)
	var both sync.WaitGroup
	both.Go(func() { relay(server, client) })
	relay(client, server)
	both.Wait()
}

// relay copies one direction, and ends it at the other side, so that the other direction can go on.
func relay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}

func (b *balancer) track(ctx context.Context, server net.Conn, address string, client net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	// set may have come between dial and this.
	if len(b.servers) > 0 && !slices.Contains(b.servers, address) {
		return false
	}
	b.open[server], b.open[client] = address, address
	return true
}

func (b *balancer) forget(all ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, each := range all {
		delete(b.open, each)
	}
}

var errNoServer = errors.New("no API server is known")

// dial connects to one of the servers.
func (b *balancer) dial(ctx context.Context) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	for {
		servers, changed := b.order()
		var problems []error
		for _, server := range servers {
			dialer := net.Dialer{Timeout: dialTime}
			conn, err := dialer.DialContext(ctx, "tcp", server)
			b.note(server, err)
			if err == nil {
				return conn, server, nil
			}
			problems = append(problems, err)
		}
		if len(servers) > 0 {
			return nil, "", errors.Join(problems...)
		}
		select {
		case <-ctx.Done():
			return nil, "", errNoServer
		case <-changed:
		}
	}
}

// order is in which order the servers are tried: each connection begins with another one, and those that could not be reached come last.
func (b *balancer) order() ([]string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var well, ill []string
	for n := range b.servers {
		server := b.servers[(b.next+n)%len(b.servers)]
		if time.Since(b.bad[server]) < badTime {
			ill = append(ill, server)
		} else {
			well = append(well, server)
		}
	}
	b.next++
	return append(well, ill...), b.changed
}

func (b *balancer) note(server string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.bad, server)
	} else {
		b.bad[server] = time.Now()
	}
}
