package nodeapi

import (
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// conns is the connections that a listener has accepted, until they are closed: a server that ends cuts them off, but for those on which somebody waits for
// the answer that comes last.
type conns struct {
	net.Listener

	mu   sync.Mutex
	open map[*conn]struct{}
	cut  bool
}

func newConns(listener net.Listener) *conns {
	return &conns{Listener: listener, open: make(map[*conn]struct{})}
}

// conn is one of them.
type conn struct {
	net.Conn
	of *conns
	// last is how many calls on it are answered last; guarded by the mu of the others.
	last int
}

// origin is the address of a call's client, and the connection by which the call came.
type origin struct {
	net.Addr
	by *conn
}

// Accept implements net.Listener.
func (c *conns) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	newest := &conn{Conn: accepted, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = accepted.Close()
	}
	c.open[newest] = struct{}{}
	return newest, nil
}

// cutOff closes all connections but those that are kept, from now on.
func (c *conns) cutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for one := range c.open {
		if one.last == 0 {
			_ = one.Conn.Close()
		}
	}
}

// keep keeps the connection of a call until the function that it returns is called.
func keep(from net.Addr) (release func()) {
	call, ok := from.(origin)
	if !ok {
		return func() {}
	}
	count := func(n int) {
		call.by.of.mu.Lock()
		defer call.by.of.mu.Unlock()
		call.by.last += n
	}
	count(1)
	return func() { count(-1) }
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr {
	address := c.Conn.RemoteAddr()
	if address == nil {
		address = c.LocalAddr()
	}
	return origin{Addr: address, by: c}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// bare are credentials that look at the connection itself, since the kernel is asked about it.
type bare struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (b bare) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := b.TransportCredentials.ServerHandshake(raw.(*conn).Conn)
	return raw, info, err
}

// Clone implements credentials.TransportCredentials.
func (b bare) Clone() credentials.TransportCredentials { return bare{b.TransportCredentials.Clone()} }
