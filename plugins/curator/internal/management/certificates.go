package management

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// fingerprintSize is how many bytes of the SHA-256 of a certificate are shown: enough to tell it from any other.
const fingerprintSize = 16

// ListCertificates implements clusterv1.ManagementServiceServer.
func (s *Service) ListCertificates(ctx context.Context, request *clusterv1.ListCertificatesRequest) (*clusterv1.ListCertificatesResponse, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	response := &clusterv1.ListCertificatesResponse{StoreCaStep: state.Store.GetPeerAuthorityStep(), Next: request.GetAfter()}
	response.Phase, _ = phaseOf(state)
	for i, der := range state.CA {
		if request.GetAfter() != "" {
			break
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("stored CA certificate: %w", err)
		}
		response.Certificates = append(response.Certificates, described(certificate, &clusterv1.Certificate{
			Kind: clusterv1.CertificateKind_CERTIFICATE_KIND_CA, Subject: certificate.Subject.String(), Use: useOfCA(state, i),
		}))
	}
	// Who does not say how many knows no pages, and would take the first one for all.
	limit := request.GetLimit()
	for more := true; more; more = limit == 0 && response.GetNext() != "" {
		var issued []store.Issued
		most := maxCertificates
		if limit > 0 {
			most = int(min(limit, maxCertificates))
		}
		if issued, response.Next, err = s.config.Store.ListIssued(ctx, response.GetNext(), most); err != nil {
			return nil, err
		}
		response.Certificates = append(response.Certificates, s.describe(state, issued)...)
		if proto.Size(response) > limits.Message {
			return nil, answer.Errorf(codes.ResourceExhausted, "the certificates of the cluster are more than one answer holds: ask for them by pages, as a later version of the command line does")
		}
	}
	slices.SortFunc(response.Certificates, func(a, b *clusterv1.Certificate) int {
		return cmp.Or(a.GetNotAfter().AsTime().Compare(b.GetNotAfter().AsTime()), cmp.Compare(a.GetSubject(), b.GetSubject()),
			cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetFingerprint(), b.GetFingerprint()))
	})
	return response, nil
}

// maxCertificates is how many certificates one page lists, beside those of the CA. Each has some hundreds of bytes in the store.
const maxCertificates = 1000

// describe returns those of some certificates that somebody takes, as they are shown.
func (s *Service) describe(state *store.State, issued []store.Issued) (all []*clusterv1.Certificate) {
	for _, one := range issued {
		certificate, err := x509.ParseCertificate(one.Certificate)
		if err != nil || len(certificate.URIs) != 1 || !inForce(state, one) || !s.config.Now().Before(certificate.NotAfter) {
			continue // nobody takes it any more
		}
		shown := &clusterv1.Certificate{Subject: certificate.URIs[0].String(), NodeId: one.Node}
		shown.Kind, shown.Use = kindOf(one)
		if !signs(state, certificate) {
			shown.Use += ", signed by the old CA"
		}
		all = append(all, described(certificate, shown))
	}
	return all
}

// useOfCA says what the certificate of the CA at a place is there for.
func useOfCA(state *store.State, place int) string {
	switch {
	case place == 0:
		return "signs"
	case state.CAPrepared:
		return "trusted, and signs once it is activated"
	default:
		return "trusted until it is retired"
	}
}

func kindOf(issued store.Issued) (kind clusterv1.CertificateKind, use string) {
	switch {
	case issued.Role == "":
		return clusterv1.CertificateKind_CERTIFICATE_KIND_NODE, "identifies the node"
	case issued.Curator:
		return clusterv1.CertificateKind_CERTIFICATE_KIND_CURATOR, "serves the cluster API"
	default:
		return clusterv1.CertificateKind_CERTIFICATE_KIND_ROLE, "identifies the role"
	}
}

// described adds what every certificate says of itself.
func described(certificate *x509.Certificate, shown *clusterv1.Certificate) *clusterv1.Certificate {
	sum := sha256.Sum256(certificate.Raw)
	shown.Fingerprint = hex.EncodeToString(sum[:fingerprintSize])
	shown.NotBefore, shown.NotAfter = timestamppb.New(certificate.NotBefore), timestamppb.New(certificate.NotAfter)
	return shown
}
