package cluster_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// curator serves the NodeService for real: over TLS, on any listener. What it answers is set by the test, what it was asked is kept.
type curator struct {
	clusterv1.UnimplementedNodeServiceServer

	certificate atomic.Pointer[tls.Certificate]
	// view is what Watch streams; nothing before it is set.
	view *event.Value[*clusterv1.WatchResponse]
	// endWatches ends every Watch stream with its error while it holds one.
	endWatches event.Value[error]

	mu    sync.Mutex
	rules rules

	// What came, in order.
	calls   event.Value[[]call]
	opened  event.Value[int] // streams of heartbeats
	reports event.Value[[]*clusterv1.NodeStatus]
}

// rules are how a curator answers; they are read at every call.
type rules struct {
	// room is how much of the directory the curator says that it has for the node.
	room uint32
	ttl  uint32
	// refuse is the error of every call; nil: none.
	refuse error
	// denied is an SVID with which nobody is let in; nil: none.
	denied []byte
	// refuseReport is the error of every report; nil: none.
	refuseReport error
	// refuseRole is the error of every request for the SVID of a role; nil: none.
	refuseRole error
	// hold, if not nil, is waited for by every unary call before it is answered.
	hold chan struct{}
	// slow is how long every call takes.
	slow time.Duration
	// oneView ends a Watch stream after its first message.
	oneView bool
	// older is whether the curator knows no stream of heartbeats.
	older bool
	// issue makes an SVID; nil: none is issued. ca comes with it.
	issue func() [][]byte
	ca    [][]byte
}

// call is one call that came.
type call struct {
	method string
	// who is the client's certificate.
	who *x509.Certificate
	at  time.Time
	// incarnation is what the call's header says, all of it.
	incarnation []string
}

func newCurator(certificate *tls.Certificate) *curator {
	c := &curator{view: new(event.Value[*clusterv1.WatchResponse]), rules: rules{ttl: 30}}
	c.certificate.Store(certificate)
	return c
}

// set changes the rules.
func (c *curator) set(change func(*rules)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.rules)
}

func (c *curator) now() rules {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules
}

// serve serves on a listener until stop is called, which cuts every connection.
func (c *curator) serve(t *testing.T, listener net.Listener) (stop func()) {
	t.Helper()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:             tls.VersionTLS13,
			GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.certificate.Load(), nil },
			ClientAuth:             tls.RequireAnyClientCert,
			SessionTicketsDisabled: true,
		})),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	clusterv1.RegisterNodeServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return sync.OnceFunc(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // it may be stopped before it serves
			t.Errorf("the fake curator: %v", err)
		}
	})
}

func (c *curator) came(ctx context.Context, method string) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return fmt.Errorf("no peer")
	}
	who := from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
	c.calls.Update(func(calls []call) []call {
		return append(slices.Clip(calls), call{method, who, time.Now(), metadata.ValueFromIncomingContext(ctx, clusterv1.IncarnationHeader)})
	})
	now := c.now()
	if now.slow > 0 {
		slow := time.NewTimer(now.slow)
		defer slow.Stop()
		select {
		case <-slow.C:
		case <-ctx.Done():
		}
	}
	if now.hold != nil && method != "Watch" {
		select {
		case <-now.hold:
		case <-ctx.Done():
		}
	}
	if now.denied != nil && bytes.Equal(now.denied, who.Raw) {
		return status.Error(codes.Unauthenticated, "the client certificate was not issued by the cluster")
	}
	return now.refuse
}

func (c *curator) Watch(_ *clusterv1.WatchRequest, stream grpc.ServerStreamingServer[clusterv1.WatchResponse]) error {
	if err := c.came(stream.Context(), "Watch"); err != nil {
		return err
	}
	views, ends := c.view.Watch(), c.endWatches.Watch()
	for {
		if err, _ := c.endWatches.Get(); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-ends.Changed():
			if _, err := ends.Next(stream.Context()); err != nil {
				return err
			}
		case <-views.Changed():
			view, err := views.Next(stream.Context())
			if err != nil {
				return err
			}
			if err := stream.Send(view); err != nil || c.now().oneView {
				return err
			}
		}
	}
}

func (c *curator) ReportStatus(ctx context.Context, request *clusterv1.ReportStatusRequest) (*clusterv1.ReportStatusResponse, error) {
	if err := c.came(ctx, "ReportStatus"); err != nil {
		return nil, err
	}
	if err := c.now().refuseReport; err != nil {
		return nil, err
	}
	c.reports.Update(func(reports []*clusterv1.NodeStatus) []*clusterv1.NodeStatus {
		return append(slices.Clip(reports), request.GetStatus())
	})
	return &clusterv1.ReportStatusResponse{PublishedBytes: c.now().room}, nil
}

func (c *curator) Heartbeat(ctx context.Context, _ *clusterv1.HeartbeatRequest) (*clusterv1.HeartbeatResponse, error) {
	if err := c.came(ctx, "Heartbeat"); err != nil {
		return nil, err
	}
	return &clusterv1.HeartbeatResponse{TtlSeconds: c.now().ttl}, nil
}

// KeepAlive takes each heartbeat as Heartbeat does, unless the curator is an older one.
func (c *curator) KeepAlive(stream grpc.BidiStreamingServer[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]) error {
	if c.now().older {
		return c.UnimplementedNodeServiceServer.KeepAlive(stream)
	}
	c.opened.Update(func(opened int) int { return opened + 1 })
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := c.came(stream.Context(), "Heartbeat"); err != nil {
			return err
		}
		if err := stream.Send(&clusterv1.KeepAliveResponse{TtlSeconds: c.now().ttl}); err != nil {
			return err
		}
	}
}

func (c *curator) IssueSVID(ctx context.Context, _ *clusterv1.IssueSVIDRequest) (*clusterv1.IssueSVIDResponse, error) {
	if err := c.came(ctx, "IssueSVID"); err != nil {
		return nil, err
	}
	issue := c.now().issue
	if issue == nil {
		return nil, status.Error(codes.Unavailable, "this test issues no SVIDs")
	}
	return &clusterv1.IssueSVIDResponse{Svid: issue(), CaCertificates: c.now().ca}, nil
}

func (c *curator) IssueRoleSVID(ctx context.Context, request *clusterv1.IssueRoleSVIDRequest) (*clusterv1.IssueRoleSVIDResponse, error) {
	if err := c.came(ctx, "IssueRoleSVID"); err != nil {
		return nil, err
	}
	if err := c.now().refuseRole; err != nil {
		return nil, err
	}
	return &clusterv1.IssueRoleSVIDResponse{Svid: [][]byte{request.GetCertificateRequest(), []byte(request.GetRole())}, CaCertificates: [][]byte{[]byte("ca")}}, nil
}

// count is how many calls of a method came.
func (c *curator) count(method string) int {
	calls, _ := c.calls.Get()
	n := 0
	for _, call := range calls {
		if call.method == method {
			n++
		}
	}
	return n
}

// listenTCP listens on a free port of the loopback.
func listenTCP(t *testing.T) (net.Listener, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener, listener.Addr().String()
}

// pipes is a network inside the process, for tests on a fake clock.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	// silent swallows everything that is sent, in both directions, and says so to nobody: a stopped process.
	silent bool
	// mute are the addresses at which it is so.
	mute  map[string]bool
	dials int
}

func newPipes() *pipes {
	return &pipes{listeners: map[string]*bufconn.Listener{}, mute: map[string]bool{}}
}

func (p *pipes) listen(address string) net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	listener := bufconn.Listen(64 << 10)
	p.listeners[address] = listener
	return acceptor{listener}
}

func (p *pipes) close(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, address)
}

func (p *pipes) freeze(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = frozen
}

func (p *pipes) freezeAt(address string, frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute[address] = frozen
}

func (p *pipes) dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (p *pipes) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	listener, ok := p.listeners[address]
	p.dials++
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return &pipe{Conn: end{conn}, of: p, to: address}, nil
}

type acceptor struct{ net.Listener }

func (a acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return end{conn}, nil
}

// end is an end of a connection in the process. A deadline that is over ends a moment later on it: two timers that fire as they are made, on a fake clock, end a process with the race detector (Go 1.26).
type end struct{ net.Conn }

func (e end) SetDeadline(at time.Time) error      { return e.Conn.SetDeadline(later(at)) }
func (e end) SetReadDeadline(at time.Time) error  { return e.Conn.SetReadDeadline(later(at)) }
func (e end) SetWriteDeadline(at time.Time) error { return e.Conn.SetWriteDeadline(later(at)) }

func later(at time.Time) time.Time {
	if soon := time.Now().Add(time.Nanosecond); !at.IsZero() && at.Before(soon) {
		return soon
	}
	return at
}

// pipe is a connection whose writes vanish while its network is silent.
type pipe struct {
	net.Conn
	of *pipes
	to string
}

func (p *pipe) Write(b []byte) (int, error) {
	p.of.mu.Lock()
	silent := p.of.silent || p.of.mute[p.to]
	p.of.mu.Unlock()
	if silent {
		return len(b), nil
	}
	return p.Conn.Write(b)
}
