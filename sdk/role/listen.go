package role

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/proto/limits"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// handshakeTime is how long a peer may take to prove itself, and how long it is let wait for an SVID of this instance.
	handshakeTime = 10 * time.Second
	// maxHandshakes is how many connections may be in the handshake at once. When it is reached, the oldest connection of the host that has the most is closed for the
	// new one.
	maxHandshakes = 256
	// maxWaiting is how many that have proved themselves may wait for Accept. What comes beyond that is closed, without a word.
	maxWaiting = 256
	// warnInterval is how often it is said at most that connections were closed for that.
	warnInterval = 10 * time.Second
	// lagTime is how long a peer that the directory does not have is let wait for that: its own node may have heard of its role a moment earlier.
	lagTime = time.Second
	// retryListen is the wait before a listener tries again what failed.
	retryListen = time.Second
)

// ListenOption changes what Listen does.
type ListenOption func(*listening)

type listening struct {
	roles     []string
	address   string
	protocols []string
	operators bool
}

// AllowRoles says of which roles the peers may be, in place of the listener's own.
func AllowRoles(roles ...string) ListenOption {
	return func(l *listening) { l.roles = roles }
}

// AllowOperators lets operators of the cluster in too, who prove themselves by the certificates of their sessions (reeve login), as whom OperatorOf tells. The role needs the grant
// "watch-operators". A connection is closed at once when the cluster has that operator no more, or in another role than before.
func AllowOperators() ListenOption {
	return func(l *listening) { l.operators = true }
}

// ListenOn says on which host:port to listen, in place of the node's first address and a free port.
func ListenOn(address string) ListenOption {
	return func(l *listening) { l.address = address }
}

// Protocols are the application protocols (ALPN), such as "h2", that are offered to clients that were not written with this package and ask for
// one. What is accepted speaks the first of them that the client asked for.
func Protocols(names ...string) ListenOption {
	return func(l *listening) { l.protocols = names }
}

// Listener accepts connections of other instances of the cluster. It is a net.Listener, for net/http and, with Credentials, for gRPC.
type Listener struct {
	host     *Host
	name     string
	settings listening
	accepted chan *peerConn
	waiting  chan struct{}
	unproven unproven
	// ctx ends when the listener is closed, or the instance ends.
	ctx  context.Context
	stop context.CancelFunc
	once sync.Once

	mu        sync.Mutex
	listener  net.Listener
	announced bool
	warned    time.Time // when it was last said that too many wait
}

// errFull says that a role does not accept what it is sent: it is not sent more and more.
var errFull = errors.New("too many wait to be accepted")

// Listen listens for connections of other instances of the cluster, by TCP on the node's first address and a free port, and shows the address to the
// cluster as the endpoint of that name (see Host.SetEndpoint) as soon as the instance has an SVID. When the node's first address changes, it listens there.
//
// A connection is TLS 1.3, by which both sides prove themselves by their SVIDs. It is accepted only from a role that is allowed (by default, this role of other
// nodes), on a node that the cluster's directory has; PeerOf says from whom it is. It is closed at once when that node leaves the
// directory or has that role no more, and at the latest when one of the two SVIDs expires with which it was made, which is within the hour: what takes longer has to connect
// again. Other connections do not reach Accept.
//
// Listen waits, as long as ctx lets it, until the node knows its addresses. It does not wait for the SVID: whoever connects before there is one waits a
// little. The listener ends with the instance, or by Close.
func (h *Host) Listen(ctx context.Context, name string, options ...ListenOption) (*Listener, error) {
	if !limits.NameOK(name) {
		return nil, fmt.Errorf("role: listen: the endpoint's name %q is not one line of 1 to %d bytes", limits.Cut(name, limits.Name), limits.Name)
	}
	settings := listening{roles: []string{h.Role()}}
	for _, option := range options {
		option(&settings)
	}
	address := settings.address
	if address == "" {
		addresses, err := h.Network().Wait(ctx, func(now []string) bool { return len(now) > 0 })
		if err != nil {
			return nil, fmt.Errorf("role: listen for %s: the node knows no address of its own yet: %w", name, err)
		}
		address = net.JoinHostPort(addresses[0], "0")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("role: listen for %s: %w", name, err)
	}
	h.connections.begin(h)
	if settings.operators {
		h.Operators()
	}
	l := &Listener{
		host: h, name: name, settings: settings, listener: listener,
		accepted: make(chan *peerConn), waiting: make(chan struct{}, maxWaiting),
	}
	l.ctx, l.stop = context.WithCancel(h.ctx)
	context.AfterFunc(l.ctx, func() { _ = l.Close() })
	if !h.background(func() { l.accept(listener) }) || !h.background(l.announce) || settings.address == "" && !h.background(l.move) {
		_ = l.Close()
		return nil, fmt.Errorf("role: listen for %s: %w", name, errHostClosed)
	}
	return l, nil
}

// Accept implements net.Listener. The peer of what it returns has proved itself.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr is where the listener listens now.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listener.Addr()
}

// Close ends the listener and withdraws its endpoint. Connections that were accepted stay.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		l.stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		err = l.listener.Close()
		if l.announced {
			l.host.SetEndpoint(l.name, "")
		}
	})
	return err
}

// sleep waits, and reports whether the listener is still open then.
func (l *Listener) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// announce shows the endpoint to the cluster when there is an SVID to serve it with.
func (l *Listener) announce() {
	if _, _, err := l.host.prover.present(l.ctx); err != nil {
		return // the listener was closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	l.announced = true
	l.host.SetEndpoint(l.name, l.listener.Addr().String())
}

// move follows the node's first address.
func (l *Listener) move() {
	networks := l.host.network.Watch()
	for {
		addresses, err := networks.Next(l.ctx)
		for err == nil && len(addresses) > 0 {
			if err := l.listenAt(addresses[0]); err == nil || l.ctx.Err() != nil {
				break
			} else {
				l.host.log.Error("the node's first address has changed, and nobody can listen there yet; the former one stays",
					"endpoint", l.name, "error", err, "again in", retryListen)
			}
			if !l.sleep(retryListen) {
				return
			}
			if now, _ := networks.Latest(); len(now) > 0 {
				addresses = now
			}
		}
		if err != nil {
			return
		}
	}
}

// listenAt listens on a host in place of the present one.
func (l *Listener) listenAt(host string) error {
	if now, _, err := net.SplitHostPort(l.Addr().String()); err == nil && now == host {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(l.ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || !l.host.background(func() { l.accept(listener) }) {
		return listener.Close()
	}
	former := l.listener
	l.listener = listener
	if l.announced {
		l.host.SetEndpoint(l.name, listener.Addr().String())
	}
	return former.Close()
}

// accept lets peers prove themselves, each beside the others.
func (l *Listener) accept(listener net.Listener) {
	for {
		raw, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// No file descriptor is left, say: it passes.
			l.host.log.Error("a connection could not be accepted", "endpoint", l.name, "error", err, "again in", retryListen)
			if !l.sleep(retryListen) {
				return
			}
			continue
		}
		peer, former := l.unproven.enter(l.ctx, raw)
		if former != nil {
			l.host.log.Debug("a connection was closed, whose peer had not proved itself, for a new one", "endpoint", l.name, "from", former.conn.RemoteAddr())
			former.end()
		}
		if !l.host.background(func() { l.admit(peer) }) {
			peer.end()
			return
		}
	}
}

// admit has a peer prove itself, and hands it to Accept.
func (l *Listener) admit(peer *unprovenPeer) {
	conn, err := l.prove(peer.ctx, peer.conn)
	if inside := l.unproven.leave(peer); !inside && err == nil {
		<-l.waiting
		_ = conn.Close()
		err = errors.New("it was closed for a newer connection")
	}
	if err != nil {
		peer.end() // err is what matters
		switch {
		case l.ctx.Err() != nil:
		case errors.Is(err, errFull) && l.mayWarn():
			l.host.log.Warn("a connection was closed; others that are soon are not told of", "endpoint", l.name, "from", peer.conn.RemoteAddr(), "reason", err, "waiting", maxWaiting)
		default:
			l.host.log.Debug("a connection was refused", "endpoint", l.name, "from", peer.conn.RemoteAddr(), "reason", err)
		}
		return
	}
	defer func() { <-l.waiting }()
	select {
	case l.accepted <- conn:
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

// mayWarn reports whether it is time to say again that too many wait.
func (l *Listener) mayWarn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.warned) < warnInterval {
		return false
	}
	l.warned = time.Now()
	return true
}

// prove has both sides prove themselves, and tells the peer whether it is let in. One that is has its place among those that wait for Accept, which the caller gives back.
func (l *Listener) prove(ctx context.Context, raw net.Conn) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	certificate, trust, err := l.host.prover.present(ctx)
	if err != nil {
		return nil, err
	}
	// A node that has not heard of the directory yet would refuse everybody.
	if _, err := l.host.directory.Wait(ctx, func(*hostv1.Directory) bool { return true }); err != nil {
		return nil, fmt.Errorf("the node does not know the cluster's directory yet: %w", err)
	}
	conn := &peerConn{usage: x509.ExtKeyUsageClientAuth}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequireAnyClientCert,
		// A ticket would outlive the SVID that it was given for.
		SessionTicketsDisabled: true,
		VerifyConnection:       conn.verify(trust, certificate.Leaf),
	}
	if l.settings.operators {
		config.VerifyConnection = conn.verifyAny(trust, certificate.Leaf)
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		chosen := config.Clone()
		chosen.NextProtos = l.settings.protocols
		if slices.Contains(hello.SupportedProtos, answered) {
			chosen.NextProtos = []string{answered}
		}
		return chosen, nil
	}
	conn.Conn = tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	said := admitted
	if conn.operator == nil && !slices.Contains(l.settings.roles, conn.peer.Role) {
		said, err = otherRole, fmt.Errorf("%s is not let in: only %s may connect", conn.peer, strings.Join(l.settings.roles, ", "))
	} else if err = l.hold(ctx, conn); err != nil {
		if said = notMember; errors.Is(err, errNoRole) {
			said = notAssigned
		}
		err = fmt.Errorf("%s is not let in: %w", conn.name(), err)
	} else {
		select { // before the peer is told that it is let in
		case l.waiting <- struct{}{}:
		default:
			_ = conn.Close() // nothing was said
			return nil, fmt.Errorf("%s is not let in: %w", conn.name(), errFull)
		}
	}
	if conn.ConnectionState().NegotiatedProtocol == answered {
		if answerErr := said.write(ctx, conn); answerErr != nil && err == nil {
			<-l.waiting
			l.host.connections.remove(conn)
			return nil, answerErr
		}
	}
	if err != nil {
		_ = conn.Conn.Close() // err is what matters; this sends what was written
		return nil, err
	}
	return conn, nil
}

// hold takes a connection in. A peer of which the directory does not know yet is waited for a little.
func (l *Listener) hold(ctx context.Context, conn *peerConn) error {
	ctx, cancel := context.WithTimeout(ctx, lagTime)
	defer cancel()
	// What comes of the wait, hold says.
	if conn.operator != nil {
		who := conn.operator
		_, _ = l.host.operators.Wait(ctx, func(now *hostv1.Operators) bool {
			_, err := roleOf(now, who.Name, who.ID)
			return err == nil
		})
		now, _ := l.host.operators.Get()
		var err error
		if who.Role, err = roleOf(now, who.Name, who.ID); err != nil {
			return err
		}
		return l.host.connections.hold(conn)
	}
	_, _ = l.host.directory.Wait(ctx, func(now *hostv1.Directory) bool { return known(now, conn.peer) == nil })
	return l.host.connections.hold(conn)
}

// verify is what TLS asks about the peer of a connection that is being made with this side's SVID.
func (c *peerConn) verify(trust *trust, own *x509.Certificate) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		peer, err := trust.verify(state.PeerCertificates, c.usage, time.Now())
		if err != nil {
			return err
		}
		c.peer, c.chain, c.ends = peer, state.PeerCertificates, own.NotAfter
		if end := c.chain[0].NotAfter; end.Before(c.ends) {
			c.ends = end
		}
		c.spoken.Store(trust)
		return nil
	}
}
