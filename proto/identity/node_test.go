package identity_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

func TestVerifyNode(t *testing.T) {
	const id = "reeve-0123456789abcdef0123456789abcdef"
	ca, foreign := newAuthority(t, nil), newAuthority(t, nil)
	shown := func(of *testAuthority, usage x509.ExtKeyUsage, uris ...*url.URL) []*x509.Certificate {
		return []*x509.Certificate{of.issue(t, identity.Session{Operator: "alice", ID: operatorID, Ends: ends}, func(c *x509.Certificate) {
			c.URIs, c.ExtKeyUsage = uris, []x509.ExtKeyUsage{usage}
		})}
	}
	node := identity.NodeURI(domain, id)
	roots := []*x509.Certificate{ca.certificate}
	if err := identity.VerifyNode(shown(ca, x509.ExtKeyUsageServerAuth, node), roots, domain, id, atNoon); err != nil {
		t.Errorf("the node: %v", err)
	}
	for name, test := range map[string]struct {
		chain []*x509.Certificate
		at    time.Time
		says  string
	}{
		"nothing":           {nil, atNoon, "no certificate"},
		"of a foreign CA":   {shown(foreign, x509.ExtKeyUsageServerAuth, node), atNoon, "unknown authority"},
		"for clients":       {shown(ca, x509.ExtKeyUsageClientAuth, node), atNoon, "usage"},
		"that has run out":  {shown(ca, x509.ExtKeyUsageServerAuth, node), atNoon.Add(61 * time.Minute), "expired"},
		"of another node":   {shown(ca, x509.ExtKeyUsageServerAuth, identity.NodeURI(domain, strings.Replace(id, "0", "1", 1))), atNoon, "not for spiffe://"},
		"of a role":         {shown(ca, x509.ExtKeyUsageServerAuth, identity.RoleURI(domain, id, "curator")), atNoon, "not for spiffe://"},
		"of two":            {shown(ca, x509.ExtKeyUsageServerAuth, node, node), atNoon, "not for spiffe://"},
		"of another domain": {shown(ca, x509.ExtKeyUsageServerAuth, identity.NodeURI("other.reeve", id)), atNoon, "not for spiffe://"},
	} {
		if err := identity.VerifyNode(test.chain, roots, domain, id, test.at); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
