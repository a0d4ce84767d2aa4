package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"testing"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	roleOwner    = clusterv1.OperatorRole_OPERATOR_ROLE_OWNER
	roleOperator = clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR
	roleViewer   = clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER
)

// operator is somebody whom the owner has added.
type operator struct {
	c      *cluster
	key    ed25519.PrivateKey
	record *clusterv1.Operator
}

func (c *cluster) addOperator(name string, role clusterv1.OperatorRole) *operator {
	c.t.Helper()
	o := &operator{c: c, key: newKey(c.t)}
	response, err := c.asOwner().AddOperator(c.t.Context(), &clusterv1.AddOperatorRequest{Name: name, Role: role, PublicKey: public(o.key)})
	if err != nil {
		c.t.Fatal(err)
	}
	o.record = response.GetOperator()
	return o
}

// login begins a session.
func (o *operator) login() *tls.Certificate {
	o.c.t.Helper()
	certificate, _ := o.c.loginWith(selfSigned(o.c.t, o.key), &clusterv1.LoginRequest{})
	return certificate
}

// client is the management service as the operator calls it, in a session.
func (o *operator) client() clusterv1.ManagementServiceClient {
	o.c.t.Helper()
	return o.c.as(o.login())
}

func (c *cluster) ownerSession() *tls.Certificate {
	c.t.Helper()
	certificate, _ := c.loginWith(selfSigned(c.t, c.owner), &clusterv1.LoginRequest{})
	return certificate
}

// loginWith logs in with a certificate, for a key of its own.
func (c *cluster) loginWith(with *tls.Certificate, request *clusterv1.LoginRequest) (*tls.Certificate, *clusterv1.LoginResponse) {
	c.t.Helper()
	key := newKey(c.t)
	request.PublicKey = public(key)
	response, err := c.as(with).Login(c.t.Context(), request)
	if err != nil {
		c.t.Fatal(err)
	}
	return certificate(key, response.GetCertificate()), response
}

// as is the management service as the holder of a certificate calls it.
func (c *cluster) as(certificate *tls.Certificate) clusterv1.ManagementServiceClient {
	return clusterv1.NewManagementServiceClient(c.dial(c.curator, certificate))
}

// log returns the newest entries of the audit log, the newest first.
func (c *cluster) log(limit uint32) []*clusterv1.AuditEntry {
	c.t.Helper()
	response, err := c.asOwner().ListAudit(c.t.Context(), &clusterv1.ListAuditRequest{Limit: limit})
	if err != nil {
		c.t.Fatal(err)
	}
	return response.GetEntries()
}

// newest returns the newest entry, or an empty one if there is none.
func (c *cluster) newest() *clusterv1.AuditEntry {
	c.t.Helper()
	for _, entry := range c.log(1) {
		return entry
	}
	return new(clusterv1.AuditEntry)
}

// inTime returns a context that ends when a test has waited too long.
func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
