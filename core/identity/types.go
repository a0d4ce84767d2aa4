package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
)

// Identity is who the node is. A published Identity never changes.
type Identity struct {
	NodeID string
	// Key is the node key.
	Key ed25519.PrivateKey
	// ClusterID and TrustDomain are empty before the node belongs to a cluster or makes one.
	ClusterID   string
	TrustDomain string
	// CA are the certificates of the cluster CA; empty before the node is a member.
	CA []*x509.Certificate
	// SVID is the node's certificate for Key; nil before the node is a member. It may have expired.
	SVID *tls.Certificate
	// Owner is the public key of the cluster's owner, as the parameters or the cluster last said.
	Owner ed25519.PublicKey
}

// Credentials is what the cluster last sent to the node.
type Credentials struct {
	// CA are the certificates of the cluster CA, DER.
	CA [][]byte
	// SVID is the node's certificate, leaf first, DER; nil if unchanged.
	SVID [][]byte
	// Owner is the owner's Ed25519 public key.
	Owner []byte
}
