package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// ClockSkew is by how much the clocks of the cluster's machines may differ: the certificates of the CA and of nodes are valid from so long before they are made.
const ClockSkew = time.Hour

// NewCAError says that a server's certificate is of a CA of the caller's cluster that the caller does not know. It proves nothing: whoever answers can have made that CA.
type NewCAError struct {
	// Since is when the shown CA was made.
	Since time.Time
	// Back is what to do if the owner replaced the CA, as the end of a sentence; empty: nothing is known to do.
	Back string
}

func (e *NewCAError) Error() string {
	text := fmt.Sprintf("the cluster has a new CA since %s, by what is shown there, and only an older one is known here", e.Since.UTC().Format(time.RFC3339))
	if e.Back != "" {
		// This comes first: whoever follows the advice of somebody who only made up a CA could lose a node by it.
		text += ". If the owner replaced the cluster's CA: " + e.Back + ". If nobody did, somebody else answers there"
	}
	return text
}

// ExplainCA returns a *NewCAError in place of an error of the verification of a server's certificates, leaf first, if that is what is wrong with them. Any other error is returned as it is.
func ExplainCA(err error, shown []*x509.Certificate, trustDomain, back string) error {
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return err
	}
	if since, ok := ShownCA(shown, trustDomain); ok {
		return &NewCAError{Since: since, Back: back}
	}
	return err
}

// ShownCA returns when the CA of a trust domain was made that a server shows behind its leaf; of several the newest. false: it shows none.
func ShownCA(shown []*x509.Certificate, trustDomain string) (since time.Time, ok bool) {
	uri := ClusterURI(trustDomain).String()
	for _, certificate := range shown[min(1, len(shown)):] {
		names := slices.ContainsFunc(certificate.URIs, func(u *url.URL) bool { return u.String() == uri })
		if certificate.IsCA && names && certificate.CheckSignatureFrom(certificate) == nil && certificate.NotBefore.Add(ClockSkew).After(since) {
			since, ok = certificate.NotBefore.Add(ClockSkew), true
		}
	}
	return since, ok
}
