package management

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// fingerprintSize is how many bytes of the SHA-256 of a certificate are shown: enough to tell it from any other.
const fingerprintSize = 16

// ListCertificates implements clusterv1.ManagementServiceServer.
func (s *Service) ListCertificates(ctx context.Context, _ *clusterv1.ListCertificatesRequest) (*clusterv1.ListCertificatesResponse, error) {
	state, issued, err := s.inUse(ctx)
	if err != nil {
		return nil, err
	}
	response := new(clusterv1.ListCertificatesResponse)
	response.Phase, _ = phaseOf(state)
	response.StoreCaStep = state.Store.GetPeerAuthorityStep()
	for i, der := range state.CA {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("stored CA certificate: %w", err)
		}
		response.Certificates = append(response.Certificates, described(certificate, &clusterv1.Certificate{
			Kind: clusterv1.CertificateKind_CERTIFICATE_KIND_CA, Subject: certificate.Subject.String(), Use: useOfCA(state, i),
		}))
	}
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
		response.Certificates = append(response.Certificates, described(certificate, shown))
	}
	slices.SortFunc(response.Certificates, func(a, b *clusterv1.Certificate) int {
		return cmp.Or(a.GetNotAfter().AsTime().Compare(b.GetNotAfter().AsTime()), cmp.Compare(a.GetSubject(), b.GetSubject()),
			cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetFingerprint(), b.GetFingerprint()))
	})
	return response, nil
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
