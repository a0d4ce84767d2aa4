package hostapi

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/plugin"
	names "github.com/reeveproject/reeve/proto/identity"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Issuer asks the cluster for SVIDs.
type Issuer interface {
	// IssueRoleSVID asks for the SVID of an instance of this node's role, by a certificate request (PKCS #10, DER). It returns the SVID, leaf first,
	// and the cluster CA's certificates, DER. An error that is no gRPC status says why no curator can be asked.
	IssueRoleSVID(ctx context.Context, role string, csr []byte) (svid, ca [][]byte, err error)
}

// The rate of SVIDs for an instance: issueBurst at once, then one every issueEvery. Each costs a curator a signature. A role needs about two an hour
// for itself, and as many for each library that asks on its own.
const (
	issueBurst = 16
	issueEvery = 15 * time.Second
	// issueWithin is the timeout of a curator's answer.
	issueWithin = 10 * time.Second
)

// issues requests SVIDs for one instance, one at a time.
type issues struct {
	remit    *plugin.Remit
	issuer   Issuer
	identity *event.Value[*identity.Identity]
	turn     chan struct{}
	limit    *rate.Limiter
}

func newIssues(config *Config, remit *plugin.Remit) *issues {
	return &issues{
		remit: remit, issuer: config.Issuer, identity: config.Identity, turn: make(chan struct{}, 1),
		limit: rate.NewLimiter(rate.Every(issueEvery), issueBurst),
	}
}

// issue requests an SVID for the key of a certificate request. The error is a gRPC status.
func (i *issues) issue(ctx context.Context, csr []byte, key crypto.PublicKey) (svid, ca [][]byte, leaf *x509.Certificate, err error) {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	// Only attempts that reached a curator count (see below), so this looks without taking a token.
	if i.limit.Tokens() < 1 {
		return nil, nil, nil, status.Errorf(codes.ResourceExhausted,
			"role %s has requested %d SVIDs in a short time and gets another one every %s: keep an SVID until half of its lifetime is over",
			i.remit.Role, issueBurst, issueEvery)
	}
	node, _ := i.identity.Get()
	if node == nil || len(node.CA) == 0 || i.issuer == nil {
		return nil, nil, nil, status.Error(codes.Unavailable, "this node is not a member of its cluster yet, so nobody can issue an SVID")
	}
	call, cancel := context.WithTimeout(ctx, issueWithin)
	defer cancel()
	svid, ca, err = i.issuer.IssueRoleSVID(call, i.remit.Role, csr)
	if err == nil {
		leaf, err = checkIssued(svid, key, names.RoleURI(node.TrustDomain, node.NodeID, i.remit.Role).String())
	}
	if err = i.refusal(ctx, err); status.Code(err) != codes.Unavailable {
		i.limit.Allow()
	}
	return svid, ca, leaf, err
}

// refusal turns an error of the issuer into the status that the role sees. It keeps the codes of errors that a retry does not fix.
func (i *issues) refusal(ctx context.Context, err error) error {
	var told string
	switch code := status.Code(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case code == codes.NotFound, code == codes.InvalidArgument, code == codes.PermissionDenied, code == codes.ResourceExhausted:
		return status.Errorf(code, "the cluster issues no SVID for role %s on this node: %s", i.remit.Role, status.Convert(err).Message())
	default:
		told = err.Error()
		if refused, ok := status.FromError(err); ok {
			told = refused.Message()
		}
	}
	return status.Errorf(codes.Unavailable, "no curator has issued an SVID for role %s; try again: %s", i.remit.Role, told)
}

// checkIssued fails unless the chain is an SVID of that ID for that key.
func checkIssued(chain [][]byte, key crypto.PublicKey, id string) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, errors.New("the curator answered without an SVID")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("the curator's SVID cannot be parsed: %w", err)
	}
	wanted, ok := key.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !wanted.Equal(leaf.PublicKey) {
		return nil, errors.New("the curator's SVID is for another key")
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != id {
		return nil, fmt.Errorf("the curator's SVID is for %v, not for %s", leaf.URIs, id)
	}
	return leaf, nil
}

func (s *service) IssueSVID(ctx context.Context, request *hostv1.IssueSVIDRequest) (*hostv1.IssueSVIDResponse, error) {
	key, err := names.RequestedKey(request.GetCertificateRequest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the certificate request (PKCS #10, DER) cannot be used: %s", err)
	}
	svid, ca, _, err := s.issues.issue(ctx, request.GetCertificateRequest(), key)
	if err != nil {
		s.log.Debug("No SVID for a role", "reason", status.Convert(err).Message())
		return nil, err
	}
	return &hostv1.IssueSVIDResponse{Svid: svid, CaCertificates: ca}, nil
}

// WatchTrust sends nothing before the node knows its cluster's CA.
func (s *service) WatchTrust(_ *hostv1.WatchTrustRequest, stream grpc.ServerStreamingServer[hostv1.WatchTrustResponse]) error {
	if _, err := s.config.Identity.Wait(stream.Context(), hasCA); err != nil {
		return status.FromContextError(err).Err()
	}
	return follow(stream, s.config.Identity, func(now *identity.Identity) *hostv1.WatchTrustResponse {
		return &hostv1.WatchTrustResponse{TrustDomain: now.TrustDomain, CaCertificates: derOf(now.CA)}
	})
}

func hasCA(now *identity.Identity) bool { return now != nil && len(now.CA) > 0 }

func derOf(certificates []*x509.Certificate) [][]byte {
	ders := make([][]byte, len(certificates))
	for n, certificate := range certificates {
		ders[n] = certificate.Raw
	}
	return ders
}

// joinDER concatenates DER certificates, as the SPIFFE Workload API wants them.
func joinDER(ders [][]byte) []byte { return bytes.Join(ders, nil) }
