package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// readTimeout is etcd's own for its peers.
	readTimeout = 5 * time.Minute
	// handshakeTimeout is how long a peer may take to prove itself.
	handshakeTimeout = 10 * time.Second
	// maxUnproven bounds connections whose peer has not proved itself yet. The oldest one goes for a new one, so that nobody shuts the others out by proving nothing.
	maxUnproven = 64
)

// Gate says who may speak to the member.
type Gate interface {
	// Admit says why a member may not connect; nil: it may. It is asked with every handshake, and again with Sweep.
	Admit(Name) error
}

// Listener serves etcd's peers.
type Listener struct {
	log         hclog.Logger
	gate        Gate
	credentials Source
	server      *http.Server
	listen      net.Listener
	served      sync.WaitGroup

	mu       sync.Mutex
	open     map[*conn]struct{}
	unproven []*conn // the oldest one first
}

// Serve serves a handler to those whom the gate admits, until Close, which closes what was bound, too.
func Serve(log hclog.Logger, listen net.Listener, credentials Source, gate Gate, handler http.Handler) *Listener {
	l := &Listener{log: log, gate: gate, credentials: credentials, listen: listen, open: make(map[*conn]struct{})}
	each := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return l.configFor(hello.Conn) },
	}
	l.server = &http.Server{Handler: handler, ReadTimeout: readTimeout, ErrorLog: stdlog.New(io.Discard, "", 0)}
	l.served.Go(func() {
		if err := l.server.Serve(tls.NewListener(accepting{l}, each)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the members of the store are not served any more", "address", listen.Addr().String(), "error", err)
		}
	})
	return l
}

// configFor has a connection know whose it is as soon as its handshake says so.
func (l *Listener) configFor(raw net.Conn) (*tls.Config, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, errors.New("peers: not a connection of this listener")
	}
	credentials, err := l.credentials()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{credentials.certificate},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              credentials.roots,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true, // each connection proves itself anew
		VerifyConnection: func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0]
			name, err := credentials.member(leaf)
			if err == nil {
				err = l.prove(c, proof{name: name, leaf: leaf, by: credentials})
			}
			if err != nil {
				l.log.Debug("refused a peer", "from", raw.RemoteAddr().String(), "error", err)
			}
			return err
		},
	}, nil
}

// prove takes note of whose a connection is, before the gate is asked: a member that goes meanwhile is found by Sweep.
func (l *Listener) prove(c *conn, shown proof) error {
	l.mu.Lock()
	c.settle()
	c.proof = &shown
	l.mu.Unlock()
	return l.gate.Admit(shown.name)
}

// Sweep closes the connections of those who may not be connected any more.
func (l *Listener) Sweep() {
	credentials, _ := l.credentials() // nil: nobody is held against any
	l.mu.Lock()
	gone := make(map[*conn]error)
	for c := range l.open {
		if c.proof == nil {
			continue
		}
		if reason := errors.Join(c.proof.again(credentials), l.gate.Admit(c.proof.name)); reason != nil {
			gone[c] = reason
		}
	}
	l.mu.Unlock()
	for c, reason := range gone {
		l.log.Info("closing a connection of a peer that is not permitted any more", "node", c.proof.name.Node, "member", FormatMember(c.proof.name.Member), "reason", reason)
		_ = c.Close()
	}
}

// Connected reports whether a member is connected.
func (l *Listener) Connected(member uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.proof != nil && c.proof.name.Member == member {
			return true
		}
	}
	return false
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.listen.Addr() }

// Close ends all connections.
func (l *Listener) Close() {
	_ = l.server.Close()
	l.served.Wait()
	l.Renew() // streams that etcd has taken over
}

// Renew closes every connection, so that the others make new ones. One to an address that this node had before gets no answers.
func (l *Listener) Renew() {
	l.mu.Lock()
	var open []*conn
	for c := range l.open {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// accepting hands the listener's connections to TLS.
type accepting struct{ *Listener }

// Accept implements net.Listener.
func (a accepting) Accept() (net.Conn, error) {
	raw, err := a.listen.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: timed{raw, onStreams().silence}, of: a.Listener}
	a.mu.Lock()
	former := a.makeRoom(raw.RemoteAddr())
	a.unproven = append(a.unproven, c)
	a.open[c] = struct{}{}
	a.mu.Unlock()
	if former != nil {
		a.log.Debug("closed a connection whose peer had not proved itself, for a new one", "from", former.RemoteAddr().String())
		_ = former.Conn.Close()
	}
	time.AfterFunc(handshakeTimeout, func() {
		a.mu.Lock()
		unproven := c.proof == nil
		a.mu.Unlock()
		if unproven {
			_ = c.Close()
		}
	})
	return c, nil
}

// makeRoom takes an unproven connection out if there is no room for another one: the oldest from the same host, or the oldest of all. The caller, who holds the lock,
// closes it then.
func (l *Listener) makeRoom(from net.Addr) *conn {
	if len(l.unproven) < maxUnproven {
		return nil
	}
	former := l.unproven[0]
	if n := slices.IndexFunc(l.unproven, func(c *conn) bool { return hostOf(c.RemoteAddr()) == hostOf(from) }); n >= 0 {
		former = l.unproven[n]
	}
	former.settle()
	delete(l.open, former)
	return former
}

func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}

// Close implements net.Listener.
func (a accepting) Close() error { return a.listen.Close() }

// Addr implements net.Listener.
func (a accepting) Addr() net.Addr { return a.listen.Addr() }

// conn is a connection of a peer. Its proof and whether it is settled are its listener's lock's.
type conn struct {
	net.Conn
	of      *Listener
	proof   *proof // nil: not proven
	settled bool
}

// proof is by what a connection was believed to be a member's.
type proof struct {
	name Name
	leaf *x509.Certificate
	by   *Credentials // the last ones that it was held against
}

// again holds it against the credentials of now: a CA that was trusted may be trusted no more.
func (p *proof) again(credentials *Credentials) error {
	if credentials == nil || p.by == credentials {
		return nil
	}
	if _, err := credentials.member(p.leaf); err != nil {
		return err
	}
	p.by = credentials
	return nil
}

// settle takes it from the unproven ones.
func (c *conn) settle() {
	if !c.settled {
		c.settled = true
		c.of.unproven = slices.DeleteFunc(c.of.unproven, func(other *conn) bool { return other == c })
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.settle()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Client speaks HTTP to another member as etcd does, for what etcd does not tell by itself. It believes that member only.
func Client(credentials *Credentials, member uint64, timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: timeout}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{credentials.certificate}, RootCAs: credentials.roots, ServerName: ServerName,
				VerifyConnection: func(state tls.ConnectionState) error {
					name, err := NameOf(state.PeerCertificates[0])
					if err == nil && (name.Cluster != credentials.Name.Cluster || name.Member != member) {
						err = fmt.Errorf("%s answers in place of member %s", name.URI(), FormatMember(member))
					}
					return err
				},
			},
			DisableKeepAlives: true,
		},
	}
}
