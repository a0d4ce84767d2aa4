package enrol

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

// dial makes the connection of one call. It sends nothing yet.
func (c *Client) dial(address string) (*grpc.ClientConn, *check, error) {
	certificate, err := names.SelfSigned(c.config.Key, time.Now())
	if err != nil {
		return nil, nil, err
	}
	check := &check{pins: c.config.Pins, domain: names.TrustDomain(c.config.ClusterID)}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			ServerName:   names.CuratorName(check.domain),
			Certificates: []tls.Certificate{certificate},
			// Only hashes of the roots are known, so check verifies the certificates. It is called in every handshake and is as strict as the
			// standard verification.
			InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
			VerifyConnection:   check.connection,
		})),
		grpc.WithContextDialer(c.config.Dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: c.connectTimeout, Multiplier: 1, MaxDelay: c.connectTimeout},
			MinConnectTimeout: c.connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message)),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("a client for it: %w", err)
	}
	return conn, check, nil
}

// check verifies a curator and keeps the typed error, since gRPC's error only has its text.
type check struct {
	pins   [][]byte
	domain string

	mu  sync.Mutex
	err error
}

func (c *check) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *check) connection(state tls.ConnectionState) error {
	err := verify(state.PeerCertificates, c.pins, names.CuratorName(c.domain), time.Now())
	if pin := (*pinFailure)(nil); errors.As(err, &pin) {
		pin.since, _ = names.ShownCA(state.PeerCertificates, c.domain)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err
}

// pinFailure says that a chain has no pinned root.
type pinFailure struct {
	// pins are the hashes of the chain's roots, and since is when the cluster's was made, if it shows one.
	pins  [][]byte
	since time.Time
}

func (e *pinFailure) Error() string {
	if len(e.pins) == 0 {
		return "it shows no CA certificate"
	}
	return fmt.Sprintf("it shows another CA: %x", e.pins)
}

// verify verifies a chain of certificates, leaf first. The chain must have a pinned, self-signed root, and by that root the leaf must be valid now
// for a server of that name.
func verify(chain []*x509.Certificate, pins [][]byte, name string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("it shows no certificate")
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	pinned, others := false, &pinFailure{}
	for _, certificate := range chain[1:] {
		pin := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		switch {
		case !certificate.IsCA || certificate.CheckSignatureFrom(certificate) != nil:
			intermediates.AddCert(certificate)
		case slices.ContainsFunc(pins, func(p []byte) bool { return bytes.Equal(p, pin[:]) }):
			pinned = true
			roots.AddCert(certificate)
		default:
			others.pins = append(others.pins, pin[:])
		}
	}
	if !pinned {
		return others
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("its certificate is valid from %s to %s, and this machine's clock says %s: compare the clocks of both machines",
			stamp(invalid.Cert.NotBefore), stamp(invalid.Cert.NotAfter), stamp(now))
	}
	if err != nil {
		return fmt.Errorf("its certificate is not a curator's of the cluster: %w", err)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
