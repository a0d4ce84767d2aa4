package crowd

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// callTimeout is that of the core.
	callTimeout = 10 * time.Second
	// beatsPerTTL is that of the core.
	beatsPerTTL = 3
	// again is how long a node waits that lost its watch: the time in which the core does.
	again = 100 * time.Millisecond
	// buffers is the size of gRPC's buffers of one node. The usual ones would cost the machine more memory than the curator that is measured.
	buffers = 4 << 10
	// window, and the pauses between attempts to connect, are those of the core.
	window   = 1 << 20
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// member is one node.
type member struct {
	crowd   *Crowd
	key     ed25519.PrivateKey
	id      string
	address net.IP
	// api is set by join; its calls carry the node's incarnation.
	api  clusterv1.NodeServiceClient
	conn *grpc.ClientConn

	// Of the watch: the directory that was last sent, the roles that the node has by its record, and the last target that it has seen.
	directory uint64
	roles     []string
	seen      *target
	came      bool
	// shown is how often the value that it publishes has changed.
	shown atomic.Int64
}

// addressOf is an address of the loopback network for the nth node: a curator bounds how many connections one address has.
func addressOf(n int) net.IP { return net.IPv4(127, 64+byte(n>>16), byte(n>>8), byte(n)) }

func (m *member) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: m.address}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, to: &m.crowd.received}, nil
}

// counted is a connection of which is counted what comes on it, with what encrypts it.
type counted struct {
	net.Conn
	to *atomic.Int64
}

// Read implements net.Conn.
func (c *counted) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.to.Add(int64(n))
	return n, err
}

// join makes the node a member of the cluster.
func (m *member) join(ctx context.Context, ticket Ticket) error {
	var err error
	if _, m.key, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return err
	}
	joinKey, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	m.id = identity.NodeID(m.key.Public().(ed25519.PublicKey))
	settings := m.crowd.settings
	client := enrol.New(enrol.Config{
		ClusterID: settings.ClusterID, NodeID: m.id, Key: m.key, Pins: settings.Pins, Curators: func() []string { return settings.Curators }, Dial: m.dial,
	})
	request := &clusterv1.RegisterRequest{
		TicketId: ticket.ID, TicketSecret: ticket.Secret, JoinPublicKey: joinKey, Version: "crowd", Addresses: []string{m.address.String()},
		Sealer: "file", Volume: "plain",
	}
	for _, role := range settings.Roles {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	if err := retried(ctx, func() error { _, err := client.Register(ctx, request); return err }); err != nil {
		return err
	}
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	incarnation := &clusterv1.Incarnation{Number: 1, Nonce: nonce}
	var committed *clusterv1.CommitResponse
	if err := retried(ctx, func() (err error) {
		committed, err = client.Commit(ctx, &clusterv1.CommitRequest{Incarnation: incarnation})
		return err
	}); err != nil {
		return err
	}
	return m.connect(committed, incarnation)
}

// tries is how often a call is made that others got in front of: of many machines that come at once, some are told to come again.
const tries = 20

func retried(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, again+time.Duration(mathrand.Int64N(int64(again)))); err != nil {
			return err
		}
	}
}

func (m *member) connect(committed *clusterv1.CommitResponse, incarnation *clusterv1.Incarnation) error {
	roots := x509.NewCertPool()
	for _, der := range committed.GetCaCertificates() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		roots.AddCert(certificate)
	}
	var err error
	m.conn, err = grpc.NewClient("passthrough:///"+m.crowd.settings.Curators[0],
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: identity.CuratorName(identity.TrustDomain(m.crowd.settings.ClusterID)),
			Certificates: []tls.Certificate{{Certificate: committed.GetNodeSvid(), PrivateKey: m.key}},
		})),
		grpc.WithContextDialer(m.dial), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(buffers), grpc.WithWriteBufferSize(buffers), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: minPause, Multiplier: 2, Jitter: 0.3, MaxDelay: maxPause}, MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(signed(ctx, incarnation), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, what *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(signed(ctx, incarnation), what, conn, method, options...)
		}),
	)
	if err != nil {
		return err
	}
	m.api = clusterv1.NewNodeServiceClient(m.conn)
	return nil
}

func signed(ctx context.Context, incarnation *clusterv1.Incarnation) context.Context {
	return metadata.AppendToOutgoingContext(ctx, clusterv1.IncarnationHeader, incarnation.Header())
}

// live does what a node does until ctx ends. ready is called once its first heartbeat, its status and its watch have gone through.
func (m *member) live(ctx context.Context, ready func()) {
	ended := make(chan struct{})
	beating := make(chan struct{})
	go func() {
		defer close(ended)
		m.beat(ctx, func() { close(beating) })
	}()
	select {
	case <-beating:
		m.report(ctx, m.crowd.settings.Roles)
		m.watch(ctx, ready)
	case <-ctx.Done():
	}
	<-ended
	if err := m.conn.Close(); err != nil {
		m.crowd.failed("close", err)
	}
}

// beat sends heartbeats, as the core does: on one stream, and on another one after one that failed.
func (m *member) beat(ctx context.Context, first func()) {
	ttl := 10 * time.Second
	var beats *pulse
	defer func() {
		if beats != nil {
			beats.close()
		}
	}()
	for began := time.Now(); ; began = time.Now() {
		if beats == nil {
			beats = m.pulse(ctx)
		}
		response, err := beats.send(ttl / beatsPerTTL)
		if err != nil {
			beats.close()
			beats = nil
		}
		if ctx.Err() != nil {
			return
		}
		if m.crowd.beat(time.Since(began), err); err == nil {
			ttl = time.Duration(response.GetTtlSeconds()) * time.Second
			if first != nil {
				first()
				// From then on at a time of its own: the nodes of a cluster were not all started at once.
				began = began.Add(-time.Duration(mathrand.Int64N(int64(ttl / beatsPerTTL))))
				first = nil
			}
		} else if pause(ctx, again) == nil {
			continue // a heartbeat that failed is sent again at once, after a pause
		}
		if pause(ctx, time.Until(began.Add(ttl/beatsPerTTL))) != nil {
			return
		}
	}
}

// pulse is a stream of heartbeats.
type pulse struct {
	stream grpc.BidiStreamingClient[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]
	failed error
	close  context.CancelFunc
}

func (m *member) pulse(ctx context.Context) *pulse {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := m.api.KeepAlive(ctx)
	return &pulse{stream: stream, failed: err, close: cancel}
}

// send sends a heartbeat. None is to be sent after one that failed.
func (p *pulse) send(within time.Duration) (*clusterv1.KeepAliveResponse, error) {
	if p.failed != nil {
		return nil, p.failed
	}
	defer time.AfterFunc(within, p.close).Stop()
	_ = p.stream.Send(&clusterv1.KeepAliveRequest{}) // if it fails Recv says why
	return p.stream.Recv()
}

// report says of roles that they are Ready.
func (m *member) report(ctx context.Context, roles []string) {
	status := &clusterv1.NodeStatus{
		NodeId: m.id, Addresses: []string{m.address.String()}, ApiAddress: net.JoinHostPort(m.address.String(), "7401"),
		Isolation: clusterv1.Isolation_ISOLATION_OWN_UID, Volume: "plain", Version: "crowd",
		Membership: &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_HOME},
	}
	for _, role := range roles {
		status.Instances = append(status.Instances, &clusterv1.InstanceStatus{
			Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY, InstanceId: m.id + "/" + role + "/1", Plugin: role, PluginVersion: "0.1.0", ConfigurationGeneration: 1,
			Values: map[string]string{"value": "0"},
		})
	}
	if shown := m.shown.Load(); shown > 0 && len(status.Instances) > 0 {
		status.Instances[0].Values["value"] = fmt.Sprint(shown)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := m.api.ReportStatus(call, &clusterv1.ReportStatusRequest{Status: status}); err != nil && ctx.Err() == nil {
		m.crowd.failed("report", err)
	}
}

// watch follows the watch, and opens it again when it ends.
func (m *member) watch(ctx context.Context, ready func()) {
	for ctx.Err() == nil {
		err := m.follow(ctx, ready)
		if ctx.Err() != nil {
			return
		}
		m.crowd.failed("watch", err)
		if pause(ctx, again) != nil {
			return
		}
	}
}

var errDoesNotFollow = errors.New("a difference does not follow on the directory that was sent before")

func (m *member) follow(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.api.Watch(ctx, &clusterv1.WatchRequest{Differences: true, OmitSame: true}, grpc.ForceCodecV2(unread{}))
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		message := new(clusterv1.WatchResponse)
		if err := stream.RecvMsg(message); err != nil {
			return err
		}
		if wanted := m.crowd.wanted(); first && m.came && wanted != nil && wanted.Back && m.seen != wanted {
			m.seen = wanted
			wanted.was()
			m.report(ctx, m.roles) // as the core does when a curator is newly in reach
		}
		news, err := read(message.ProtoReflect().GetUnknown())
		if err != nil {
			return fmt.Errorf("a message of the watch: %w", err)
		}
		if err := m.take(ctx, news); err != nil {
			return err
		}
		if !m.came {
			m.came = true
			ready()
		}
	}
}

// take looks at one message.
func (m *member) take(ctx context.Context, n *news) error {
	switch {
	case n.difference && n.from != m.directory:
		return errDoesNotFollow
	case n.difference || n.whole:
		m.directory = n.revision
	}
	if wanted := m.crowd.wanted(); wanted != nil && !wanted.Back && m.seen != wanted && n.shows(wanted) {
		m.seen = wanted
		wanted.was()
	}
	if n.node == nil {
		return nil
	}
	var roles []string
	for _, assignment := range n.node.GetRoles() {
		roles = append(roles, assignment.GetRole())
	}
	if m.came && len(roles) != len(m.roles) {
		m.report(ctx, roles)
	}
	m.roles = roles
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
