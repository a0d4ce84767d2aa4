package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// VerifyNode returns an error unless a server's certificate chain proves that the server is the node with an ID, of the cluster whose CA is roots, at that time.
func VerifyNode(chain []*x509.Certificate, roots []*x509.Certificate, trustDomain, nodeID string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("identity: the node shows no certificate")
	}
	if err := verifyChain(chain, roots, x509.ExtKeyUsageServerAuth, now); err != nil {
		return err
	}
	if want, uris := NodeURI(trustDomain, nodeID).String(), chain[0].URIs; len(uris) != 1 || uris[0].String() != want {
		return fmt.Errorf("identity: the certificate is for %v, not for %s", uris, want)
	}
	return nil
}

// verifyChain verifies a chain by the certificates of a CA.
func verifyChain(chain []*x509.Certificate, roots []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	pool, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}
