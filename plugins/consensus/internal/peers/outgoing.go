package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// keepAlive is etcd's own for its peers.
	keepAlive = 30 * time.Second
	// maxIdle is how many connections to a member may wait for the next message; etcd's own.
	maxIdle = 1024
)

// Places says who may be spoken to, and where.
type Places interface {
	Gate
	// At are the IDs of the members whose address is this one (host:port); none: nobody is known to be there.
	At(address string) []uint64
}

// OutgoingConfig is what Outgoing needs.
type OutgoingConfig struct {
	Log    hclog.Logger
	Places Places
	// Credentials are those by which the member proves itself.
	Credentials Source
	// DialTimeout bounds how long a connection may take.
	DialTimeout time.Duration
	// Elsewhere returns the machines, by address or DNS name, where a member is looked for that does not answer at its own address; nil: nowhere.
	Elsewhere func() []string
	// Now is the present time.
	Now func() time.Time
}

// Outgoing dials the other members. It connects only to a current member, and for a member's own address only to that member, which may be elsewhere meanwhile. etcd alone would accept any certificate of the peers' CA:
// a removed member that took over the address of another one would then receive every write, and its answers would be believed. A connection is closed when its member is removed, or the CA
// of its certificate is trusted no more.
type Outgoing struct {
	config OutgoingConfig

	mu   sync.Mutex
	open map[*outgoing]struct{}
	// looks are by address.
	looks map[string]look
	over  bool
	// checking are those who ask Places, or may. Nobody begins that once over is true.
	checking sync.WaitGroup
}

// NewOutgoing returns an Outgoing.
func NewOutgoing(config OutgoingConfig) *Outgoing {
	return &Outgoing{config: config, open: make(map[*outgoing]struct{}), looks: make(map[string]look)}
}

// Streams are for requests whose answer goes on for ever. A connection over which nothing comes for some seconds, in which at least a sign of life should have, ends.
func (o *Outgoing) Streams() http.RoundTripper { return o.transport(onStreams(), -1) }

// Messages are for requests that have an answer, which may take its time. A connection over which the other machine takes nothing for long ends.
func (o *Outgoing) Messages() http.RoundTripper { return o.transport(onMessages(), maxIdle) }

func (o *Outgoing) transport(within limits, idle int) *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: idle,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return o.dial(ctx, network, address, within)
		},
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, fmt.Errorf("the member at %s is not spoken to without TLS", address)
		},
	}
}

func (o *Outgoing) dial(ctx context.Context, network, address string, within limits) (net.Conn, error) {
	known := func(ctx context.Context) (net.Conn, error) {
		return o.connect(ctx, network, address, &outgoing{address: address}, within)
	}
	if o.config.Elsewhere == nil {
		return known(ctx)
	}
	return first(ctx, known, func() ([]string, dialer) {
		others, members := o.elsewhere(address)
		return others, func(ctx context.Context, at string) (net.Conn, error) {
			return o.connectElsewhere(ctx, network, address, at, within, members)
		}
	})
}

// connect makes c a connection to where the member of its address is, or is looked for.
func (o *Outgoing) connect(ctx context.Context, network, at string, c *outgoing, within limits) (net.Conn, error) {
	credentials, err := o.config.Credentials()
	if err != nil {
		return nil, err
	}
	if o.closed() {
		return nil, net.ErrClosed
	}
	raw, err := (&net.Dialer{Timeout: o.config.DialTimeout, KeepAlive: keepAlive, Control: within.control}).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	c.Conn, c.of = timed{raw, within.silence}, o
	if !o.take(c) {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	defer o.checking.Done()
	conn := tls.Client(c, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{credentials.certificate}, RootCAs: credentials.roots, ServerName: ServerName,
		NextProtos:       []string{"http/1.1"},
		VerifyConnection: func(state tls.ConnectionState) error { return o.verify(c, credentials, state) },
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return conn, nil
}

func (o *Outgoing) closed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

func (o *Outgoing) take(c *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.open[c] = struct{}{}
		o.checking.Add(1)
	}
	return !o.over
}

// membersAt asks Places, unless that is over.
func (o *Outgoing) membersAt(address string) []uint64 {
	o.mu.Lock()
	over := o.over
	if !over {
		o.checking.Add(1)
	}
	o.mu.Unlock()
	if over {
		return nil
	}
	defer o.checking.Done()
	return o.config.Places.At(address)
}

// verify checks who answers. It records the name before it checks, so that Sweep finds the connection if the member is removed in between.
func (o *Outgoing) verify(c *outgoing, credentials *Credentials, state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	name, err := credentials.member(leaf)
	if err == nil {
		o.mu.Lock()
		c.proof = &proof{name: name, leaf: leaf, by: credentials}
		o.mu.Unlock()
		err = o.permit(c, name)
	}
	if err != nil {
		err = fmt.Errorf("refused the peer at %s: %w", c.address, err)
		o.config.Log.Debug("refused a peer that answered", "error", err)
	}
	return err
}

func (o *Outgoing) permit(c *outgoing, name Name) error {
	if err := o.config.Places.Admit(name); err != nil {
		return err
	}
	// Its address may have been given up since it was looked for.
	for _, at := range [][]uint64{c.members, o.config.Places.At(c.address)} {
		if len(at) > 0 && !slices.Contains(at, name.Member) {
			return fmt.Errorf("member %s of node %s answers there in place of member %s", FormatMember(name.Member), name.Node, FormatMember(at[0]))
		}
	}
	return nil
}

// Sweep closes the connections to peers that are no longer members, or no longer have that address.
func (o *Outgoing) Sweep() {
	credentials, _ := o.config.Credentials() // nil: nobody is held against any
	for _, c := range o.all() {
		o.mu.Lock()
		shown := c.proof
		var err error
		if shown != nil {
			err = shown.again(credentials)
		}
		o.mu.Unlock()
		if shown == nil {
			continue
		}
		reason := errors.Join(err, o.permit(c, shown.name))
		if reason == nil {
			continue
		}
		o.config.Log.Info("closing a connection to a peer that is not permitted any more", "node", shown.name.Node, "member", FormatMember(shown.name.Member), "reason", reason)
		_ = c.Close()
	}
}

// Renew closes every connection, so that the next ones start from the address that this node has now. A connection from a former address gets no answers, and the kernel
// gives it up only after a quarter of an hour.
func (o *Outgoing) Renew() {
	for _, c := range o.all() {
		_ = c.Close()
	}
}

// Connected reports whether there is a connection to a member.
func (o *Outgoing) Connected(member uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.open {
		if c.proof != nil && c.proof.name.Member == member {
			return true
		}
	}
	return false
}

func (o *Outgoing) all() []*outgoing {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]*outgoing, 0, len(o.open))
	for c := range o.open {
		all = append(all, c)
	}
	return all
}

// Close ends all connections. There are none any more from then on, and nobody asks Places.
func (o *Outgoing) Close() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	for _, c := range o.all() {
		_ = c.Close()
	}
	o.checking.Wait()
}

// outgoing is a connection to a member. Its proof is the lock's of the Outgoing that it is of.
type outgoing struct {
	net.Conn
	of      *Outgoing
	address string
	members []uint64 // whom it may be, looked for elsewhere; nil: it was not looked for
	proof   *proof   // nil: not proven
}

// Close implements net.Conn.
func (c *outgoing) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
