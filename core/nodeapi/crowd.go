package nodeapi

import (
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc/credentials"

	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/held"
)

const (
	// maxStrangers is how many connections over TCP may be open whose client has not proved yet who it is, which takes milliseconds. They cost whoever
	// opens them nothing, and the core a file each, of which its roles and its socket need some.
	maxStrangers = 64
	// maxEach is how many connections a client may have that has: many commands that each follow something. With maxStreams it bounds the calls of one,
	// also after it was revoked.
	maxEach = 32
)

// crowd is the connections that a listener has accepted, until they are closed. A server that ends cuts them off, but for those on which somebody waits for the
// answer that comes last. Over TCP their number is bounded. If there are too many strangers the one that has been there longest goes: so one who proves at
// once who it is comes in even while somebody opens connections all the time.
type crowd struct {
	net.Listener
	bounded bool
	counts  *held.Counts

	mu           sync.Mutex
	open         map[*guest]struct{}
	strangers    []*guest // if it is bounded, the oldest first
	known        map[string]int
	closing, cut bool
}

// newCrowd returns the crowd of a listener. With counts it is bounded, and what its connections hold is counted.
func newCrowd(listener net.Listener, counts *held.Counts) *crowd {
	return &crowd{Listener: listener, bounded: counts != nil, counts: counts, open: make(map[*guest]struct{}), known: make(map[string]int)}
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	crowd *crowd
	// who is empty for a stranger. left says that the guest is not counted any more. last is how many calls on the connection are answered last. All with the crowd's mu held.
	who  string
	left bool
	last int
}

// origin is the address of a call's client, and the connection by which the call came.
type origin struct {
	held.Address
	by *guest
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if c.bounded {
		conn = c.counts.Connection(conn, "")
	}
	newest := &guest{Conn: conn, crowd: c, left: !c.bounded}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
	}
	c.open[newest] = struct{}{}
	if !c.bounded {
		return newest, nil
	}
	c.strangers = append(c.strangers, newest)
	sent := c.strangers[:max(0, len(c.strangers)-maxStrangers)]
	if c.closing {
		sent = c.strangers
	}
	c.sendAway(slices.Clone(sent))
	return newest, nil
}

// sendAway closes connections of strangers, to whom nothing was promised. mu is held.
func (c *crowd) sendAway(strangers []*guest) {
	for _, stranger := range strangers {
		c.leave(stranger)
		_ = stranger.Conn.Close()
	}
}

// close sends all strangers away, from now on: a server that stops would wait for them.
func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.sendAway(slices.Clone(c.strangers))
}

// cutOff closes all connections but those that are kept, from now on.
func (c *crowd) cutOff() {
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
		call.by.crowd.mu.Lock()
		defer call.by.crowd.mu.Unlock()
		call.by.last += n
	}
	count(1)
	return func() { count(-1) }
}

// leave counts a guest no more. mu is held.
func (c *crowd) leave(g *guest) {
	switch {
	case g.left:
	case g.who == "":
		c.strangers = slices.DeleteFunc(c.strangers, func(other *guest) bool { return other == g })
	case c.known[g.who] > 1:
		c.known[g.who]--
	default:
		delete(c.known, g.who)
	}
	g.left = true
}

// recognise makes a stranger somebody who is known, and fails if that one has as many connections as it may.
func (g *guest) recognise(who string) error {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	switch {
	case g.left:
		return net.ErrClosed
	case g.crowd.known[who] >= maxEach:
		return errors.New("nodeapi: the client has as many connections as it may")
	}
	g.crowd.leave(g)
	g.who, g.left = who, false
	g.crowd.known[who]++
	g.Conn.(*held.Connection).Belongs(who)
	return nil
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.crowd.mu.Lock()
	g.crowd.leave(g)
	delete(g.crowd.open, g)
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (g *guest) RemoteAddr() net.Addr {
	address, counted := g.Conn.RemoteAddr().(held.Address)
	if !counted {
		address.Addr = g.Conn.RemoteAddr()
	}
	if address.Addr == nil {
		address.Addr = g.LocalAddr()
	}
	return origin{Address: address, by: g}
}

// bare are credentials that look at the connection itself, since the kernel is asked about it.
type bare struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (b bare) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := b.TransportCredentials.ServerHandshake(raw.(*guest).Conn)
	return raw, info, err
}

// Clone implements credentials.TransportCredentials.
func (b bare) Clone() credentials.TransportCredentials { return bare{b.TransportCredentials.Clone()} }

// recognising is credentials that tell a crowd whom they have let in.
type recognising struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (r recognising) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	err = errors.New("nodeapi: the client shows no certificate")
	if proof, ok := info.(credentials.TLSInfo); ok && len(proof.State.PeerCertificates) > 0 {
		err = raw.(*guest).recognise(holderOf(proof.State.PeerCertificates[0]))
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, info, nil
}

// Clone implements credentials.TransportCredentials.
func (r recognising) Clone() credentials.TransportCredentials {
	return recognising{r.TransportCredentials.Clone()}
}

// holderOf is whose a certificate is that a handshake let through: that of a session is somebody's, however many they have, and any other one a key's.
func holderOf(certificate *x509.Certificate) string {
	if session, err := names.SessionOf(certificate); err == nil {
		return "session " + session.Operator + "/" + session.ID
	}
	return "key " + string(certificate.RawSubjectPublicKeyInfo)
}
