package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

const (
	// minPause and maxPause bound the pauses between attempts, of connecting as well as of calls. The curator is most often on this very node
	// and back in under a second, so the first are short; the last keep a node that is cut off from being a burden.
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
	// connectTimeout is how long one attempt to connect may take, handshake included: ten times what it takes on a loaded machine.
	connectTimeout = 5 * time.Second
	// pingAfter and pingTimeout end a connection whose other side answers nothing, though its kernel may: a stopped process, a
	// vanished machine. gRPC takes no less than 10 s for the first.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// window is how much of an answer may be on its way before the first of it is read: what a directory in parts needs over a long line. Its size is given, since gRPC finds another one
	// by a ping for each message, and answering those took a curator of many nodes as long as telling them.
	window = 1 << 20
)

// dial makes the connection of a session. Nothing is sent before the first call.
func (c *Client) dial(to target) (*grpc.ClientConn, error) {
	roots := x509.NewCertPool()
	node, _ := c.config.Identity.Get()
	for _, certificate := range node.CA {
		roots.AddCert(certificate)
	}
	tlsConfig := &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              roots,
		ServerName:           names.CuratorName(to.trustDomain),
		Time:                 c.config.Now,
		GetClientCertificate: c.clientCertificate,
	}
	conn, err := grpc.NewClient("passthrough:///"+to.address,
		grpc.WithTransportCredentials(handshakes{
			TransportCredentials: credentials.NewTLS(tlsConfig),
			ended:                func(refused *x509.Certificate) { c.refusedCurator(to, refused) },
			explain: func(err error, shown []*x509.Certificate) error {
				return names.ExplainCA(err, shown, to.trustDomain, wayBack(names.NodeID(node.Key.Public().(ed25519.PublicKey))))
			},
		}),
		grpc.WithChainUnaryInterceptor(c.signUnary),
		grpc.WithChainStreamInterceptor(c.signStream),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			wire, err := c.config.Dial(ctx, address)
			if err == nil {
				c.wire.Store(&wire)
			}
			return wire, err
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minPause, Multiplier: 2, Jitter: 0.3, MaxDelay: maxPause},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message)),
	)
	if err != nil {
		return nil, fmt.Errorf("a client for %s: %w", to.address, err)
	}
	return conn, nil
}

// wayBack is how a node comes into its cluster again that was off, or cut off, while the CA was replaced: nobody can prove to it whose the new one is, but an operator.
func wayBack(id string) string {
	return "the node was away then; delete it (`reeve node delete " + id + "`), make a ticket (`reeve ticket create --output-file ticket`), " +
		"and on this machine stop reeved, remove its system and data directories and its file of parameters, run `reeve init --again --join ticket`, and start it"
}

// clientCertificate chooses how the node proves itself, at each handshake anew: by its SVID, and where it has none that is valid by the
// node key itself, which the cluster has pinned.
func (c *Client) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	node, _ := c.config.Identity.Get()
	if node == nil {
		return nil, errors.New("cluster: the node has no key yet")
	}
	now := c.config.Now()
	if leaf := svidLeaf(node.SVID); leaf != nil && !now.Before(leaf.NotBefore) && now.Before(leaf.NotAfter) && !leaf.Equal(c.denied.Load()) {
		c.offered.Store(leaf)
		return node.SVID, nil
	}
	c.offered.Store(nil)
	certificate, err := names.SelfSigned(node.Key, now)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return &certificate, nil
}

// deny has the node prove itself by its key, since a curator does not take its SVID: the CA that signed it was retired before the node had another one. The
// connection is made anew for that.
func (c *Client) deny(err error) {
	node, _ := c.config.Identity.Get()
	if status.Code(err) != codes.Unauthenticated || node == nil {
		return
	}
	// The refusal may be of the SVID before the present one.
	leaf, wire := c.offered.Load(), c.wire.Load()
	if leaf == nil || wire == nil || !leaf.Equal(svidLeaf(node.SVID)) || leaf.Equal(c.denied.Load()) {
		return
	}
	c.denied.Store(leaf)
	_ = (*wire).Close()
}

// svidLeaf returns the leaf of an SVID; nil if there is none or it cannot be read.
func svidLeaf(svid *tls.Certificate) *x509.Certificate {
	switch {
	case svid == nil || len(svid.Certificate) == 0:
		return nil
	case svid.Leaf != nil:
		return svid.Leaf
	}
	leaf, err := x509.ParseCertificate(svid.Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}
