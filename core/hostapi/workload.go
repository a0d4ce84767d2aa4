package hostapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/identity"
	names "github.com/reeveproject/reeve/proto/identity"
)

const (
	// workloadHeader must be in every call of the SPIFFE Workload API, so that an attacker who can only make a workload send requests (server-side
	// request forgery) does not get its key.
	workloadHeader = "workload.spiffe.io"
	// firstIssueRetry is the pause before the first retry of a renewal. It doubles up to times.lookAgain.
	firstIssueRetry = time.Second
)

// workloads serves the SPIFFE Workload API to one instance: its X.509-SVID, with a key that the core makes, and the trust domain's certificates. The
// methods for JWT- and WIT-SVIDs are Unimplemented.
type workloads struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	config *Config
	issues *issues
	log    hclog.Logger
}

// isWorkload fails if the call lacks the header, as the standard demands.
func isWorkload(ctx context.Context) error {
	if values := metadata.ValueFromIncomingContext(ctx, workloadHeader); !slices.Equal(values, []string{"true"}) {
		return status.Errorf(codes.InvalidArgument, "the call lacks the header %q: true, which the SPIFFE Workload API demands", workloadHeader)
	}
	return nil
}

// document is an SVID with its key.
type document struct {
	chain []byte
	key   []byte // PKCS #8
	leaf  *x509.Certificate
	// renew is when to request another SVID, by the wall clock.
	renew time.Time
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (w *workloads) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	ctx := stream.Context()
	if err := isWorkload(ctx); err != nil {
		return err
	}
	identities := w.config.Identity.Watch()
	var current *document
	var sent *workload.X509SVIDResponse
	retry := firstIssueRetry
	for {
		node, _ := identities.Latest()
		wait := w.config.times.lookAgain
		if now := w.config.times.now(); current.due(node, now) {
			switch made, err := w.make(ctx); {
			case err == nil:
				current, retry = made, firstIssueRetry
			case current == nil || !now.Before(current.leaf.NotAfter):
				// The error tells the client why, and it asks again.
				return err
			default:
				w.log.Warn("Cannot renew the SVID of a client of the SPIFFE Workload API; it keeps the present one",
					"reason", status.Convert(err).Message(), "good until", current.leaf.NotAfter, "again in", retry)
				wait = retry/2 + mathrand.N(retry/2)
				retry = min(2*retry, w.config.times.lookAgain)
			}
		}
		response := &workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
			SpiffeId: current.leaf.URIs[0].String(), X509Svid: current.chain, X509SvidKey: current.key, Bundle: joinDER(derOf(node.CA)),
		}}}
		if !proto.Equal(sent, response) {
			if err := stream.Send(response); err != nil {
				return err
			}
			sent = response
		}
		if until := current.renew.Sub(w.config.times.now()); until > 0 {
			wait = min(wait, until)
		}
		select {
		case <-ctx.Done():
		case <-identities.Changed():
			if node, _ := identities.Latest(); len(node.CA) > 0 {
				current.resign(node.CA[0], w.config.times.now(), w.config.times.resignWithin)
			}
		case <-time.After(wait):
		}
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// due reports whether another SVID is needed: there is none, most of its lifetime is over, or it is not of the cluster's CA any more.
func (d *document) due(node *identity.Identity, now time.Time) bool {
	if d == nil || !now.Before(d.renew) || now.Before(d.leaf.NotBefore) {
		return true
	}
	roots := x509.NewCertPool()
	for _, certificate := range node.CA {
		roots.AddCert(certificate)
	}
	_, err := d.leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err != nil
}

// resign brings the renewal forward if another CA than the signing one issued the SVID: the old CA is retired when no certificate of it is in use.
func (d *document) resign(signs *x509.Certificate, now time.Time, within time.Duration) {
	if d.leaf.CheckSignatureFrom(signs) == nil {
		return
	}
	if soon := now.Round(0).Add(mathrand.N(within)); soon.Before(d.renew) {
		d.renew = soon
	}
}

// make makes a key and requests an SVID for it. The error is a gRPC status.
func (w *workloads) make(ctx context.Context) (*document, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, status.Error(codes.Internal, "this node cannot make a key")
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, status.Error(codes.Internal, "this node cannot make a certificate request")
	}
	chain, _, leaf, err := w.issues.issue(ctx, csr, key.Public())
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, status.Error(codes.Internal, "this node cannot encode a key") // without the error, which may quote the key
	}
	now := w.config.times.now()
	left := leaf.NotAfter.Sub(now)
	if left <= 0 {
		return nil, status.Errorf(codes.Unavailable, "the new SVID expired at %s, but this node's clock says %s: compare the clocks of the node and the curator",
			leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	// A random moment between one half and two thirds of the lifetime, so that the nodes do not ask all at once.
	return &document{chain: joinDER(chain), key: private, leaf: leaf, renew: now.Round(0).Add(left/2 + mathrand.N(left/6+1))}, nil
}

// FetchX509Bundles implements workload.SpiffeWorkloadAPIServer.
func (w *workloads) FetchX509Bundles(_ *workload.X509BundlesRequest, stream grpc.ServerStreamingServer[workload.X509BundlesResponse]) error {
	if err := isWorkload(stream.Context()); err != nil {
		return err
	}
	if _, err := w.config.Identity.Wait(stream.Context(), hasCA); err != nil {
		return status.FromContextError(err).Err()
	}
	return follow(stream, w.config.Identity, func(now *identity.Identity) *workload.X509BundlesResponse {
		return &workload.X509BundlesResponse{Bundles: map[string][]byte{names.ClusterURI(now.TrustDomain).String(): joinDER(derOf(now.CA))}}
	})
}
