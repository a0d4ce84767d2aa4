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
	// handshakeTime is the timeout of a handshake, including the wait for this instance's SVID.
	handshakeTime = 10 * time.Second
	// maxHandshakes is how many connections may be in the handshake at once. Beyond that, the oldest connection of the host with the most connections
	// is closed.
	maxHandshakes = 256
	// maxWaiting is how many authenticated connections may wait for Accept. More are closed without an answer.
	maxWaiting = 256
	// warnInterval is the shortest time between two warnings about that.
	warnInterval = 10 * time.Second
	// lagTime is how long to wait for a peer that is not in the directory yet: its own node may have heard of its role a moment earlier.
	lagTime = time.Second
	// retryListen is the pause before a listener retries.
	retryListen = time.Second
)

// ListenOption is an option of Listen.
type ListenOption func(*listening)

type listening struct {
	roles     []string
	address   string
	protocols []string
	operators bool
}

// AllowRoles admits peers of these roles instead of the listener's own.
func AllowRoles(roles ...string) ListenOption {
	return func(l *listening) { l.roles = roles }
}

// AllowOperators also admits operators of the cluster, who authenticate with the certificates of their sessions (reeve login). OperatorOf returns the
// operator. The role needs the grant "watch-operators". A connection is closed at once when the operator is removed or gets another role.
func AllowOperators() ListenOption {
	return func(l *listening) { l.operators = true }
}

// ListenOn listens on this host:port instead of the node's first address and a free port.
func ListenOn(address string) ListenOption {
	return func(l *listening) { l.address = address }
}

// Protocols are the application protocols (ALPN), such as "h2", for clients that do not use this package. A connection uses the first of them that
// the client asked for.
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
	// ctx ends with the listener or the instance.
	ctx  context.Context
	stop context.CancelFunc
	once sync.Once

	mu        sync.Mutex
	listener  net.Listener
	announced bool
	warned    time.Time // the time of the last warning
}

// errFull says that the role does not accept its connections fast enough.
var errFull = errors.New("too many wait to be accepted")

// Listen listens for connections of other instances of the cluster, with TCP on the node's first address and a free port. It publishes the address as
// the endpoint of that name (see Host.SetEndpoint) as soon as the instance has an SVID. If the node's first address changes, it moves there.
//
// A connection uses TLS 1.3, and both sides authenticate by their SVIDs. The peer must have an allowed role (by default, this role on other nodes)
// that is assigned to its node in the cluster's directory. PeerOf returns the peer. The connection is closed at once when that node leaves the
// directory or loses the role, and at the latest when one of the two SVIDs expires, which is within the hour; the peer then has to connect again.
// Other connections do not reach Accept.
//
// Listen waits until ctx ends for the node's addresses, but not for the SVID: peers that connect before there is one wait a little. The listener ends
// with the instance, or by Close.
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
			return nil, fmt.Errorf("role: listen for %s: the node has no address yet: %w", name, err)
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

// Accept implements net.Listener. The peer is authenticated.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr is the present address of the listener.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listener.Addr()
}

// Close ends the listener and withdraws its endpoint. Accepted connections stay open.
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

// sleep waits, and reports whether the listener is still open.
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

// announce publishes the endpoint once there is an SVID to serve it with.
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
				l.host.log.Error("cannot listen on the node's new first address; keeping the former one",
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

// listenAt replaces the listener by one on another host.
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

// accept starts a handshake for each connection, in its own goroutine.
func (l *Listener) accept(listener net.Listener) {
	for {
		raw, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// For example, there is no free file descriptor. That passes.
			l.host.log.Error("cannot accept a connection", "endpoint", l.name, "error", err, "again in", retryListen)
			if !l.sleep(retryListen) {
				return
			}
			continue
		}
		peer, former := l.unproven.enter(l.ctx, raw)
		if former != nil {
			l.host.log.Debug("closed an unauthenticated connection for a new one", "endpoint", l.name, "from", former.conn.RemoteAddr())
			former.end()
		}
		if !l.host.background(func() { l.admit(peer) }) {
			peer.end()
			return
		}
	}
}

// admit authenticates a peer and hands the connection to Accept.
func (l *Listener) admit(peer *unprovenPeer) {
	conn, err := l.prove(peer.ctx, peer.conn)
	if inside := l.unproven.leave(peer); !inside && err == nil {
		<-l.waiting
		_ = conn.Close()
		err = errors.New("it was closed for a newer connection")
	}
	if err != nil {
		peer.end() // err matters more
		switch {
		case l.ctx.Err() != nil:
		case errors.Is(err, errFull) && l.mayWarn():
			l.host.log.Warn("closed a connection; the next ones are not logged for a while", "endpoint", l.name, "from", peer.conn.RemoteAddr(), "reason", err, "waiting", maxWaiting)
		default:
			l.host.log.Debug("refused a connection", "endpoint", l.name, "from", peer.conn.RemoteAddr(), "reason", err)
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

// mayWarn reports whether it is time for another warning.
func (l *Listener) mayWarn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.warned) < warnInterval {
		return false
	}
	l.warned = time.Now()
	return true
}

// prove authenticates both sides and tells the peer whether it is admitted. An admitted connection has taken a place in waiting, which the caller
// frees.
func (l *Listener) prove(ctx context.Context, raw net.Conn) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	certificate, trust, err := l.host.prover.present(ctx)
	if err != nil {
		return nil, err
	}
	// Without the directory, every peer would be refused.
	if _, err := l.host.directory.Wait(ctx, func(*hostv1.Directory) bool { return true }); err != nil {
		return nil, fmt.Errorf("the node does not know the cluster's directory yet: %w", err)
	}
	conn := &peerConn{usage: x509.ExtKeyUsageClientAuth}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequireAnyClientCert,
		// A session ticket would outlive the SVID.
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
		said, err = otherRole, fmt.Errorf("refused %s: only %s may connect", conn.peer, strings.Join(l.settings.roles, ", "))
	} else if err = l.hold(ctx, conn); err != nil {
		if said = notMember; errors.Is(err, errNoRole) {
			said = notAssigned
		}
		err = fmt.Errorf("refused %s: %w", conn.name(), err)
	} else {
		select { // before the peer is told that it is admitted
		case l.waiting <- struct{}{}:
		default:
			_ = conn.Close() // no answer was sent
			return nil, fmt.Errorf("refused %s: %w", conn.name(), errFull)
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
		_ = conn.Conn.Close() // err matters more; this flushes the answer
		return nil, err
	}
	return conn, nil
}

// hold adds a connection. It first waits a little for a peer that is not in the directory yet.
func (l *Listener) hold(ctx context.Context, conn *peerConn) error {
	ctx, cancel := context.WithTimeout(ctx, lagTime)
	defer cancel()
	// If the wait fails, hold returns the reason.
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

// verify returns TLS' VerifyConnection for a connection that uses this side's SVID.
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
		c.verifiedBy.Store(trust)
		return nil
	}
}
