package store

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// signing is what a node is held against: the CA that signs.
type signing struct {
	pin       [sha256.Size]byte
	notBefore time.Time
}

// newSigning returns nil if the certificate cannot be read, or there is none.
func newSigning(ca [][]byte) *signing {
	if len(ca) == 0 {
		return nil
	}
	certificate, err := x509.ParseCertificate(ca[0])
	if err != nil {
		return nil
	}
	return &signing{pin: sha256.Sum256(certificate.RawSubjectPublicKeyInfo), notBefore: certificate.NotBefore}
}

// leftOut says that a member does not know the CA that signs, as it last reported, and what to do; "": it knows it, or has reported nothing.
func (s *State) leftOut(id string) string {
	if s.CARetired == 0 && (len(s.CA) < 2 || s.CAPrepared) || s.Nodes[id].GetState() != clusterv1.NodeState_NODE_STATE_UP {
		return "" // there was no other CA
	}
	known := s.Statuses[id].GetCaPins()
	if s.signing == nil || len(known) == 0 || slices.ContainsFunc(known, func(other []byte) bool { return bytes.Equal(other, s.signing.pin[:]) }) {
		return ""
	}
	return fmt.Sprintf("the cluster has a new CA since %s, and the node was away while it was replaced: it can believe no curator; delete it (`reeve node delete %s`) and add the machine anew with a new ticket",
		s.signing.notBefore.Add(identity.ClockSkew).UTC().Format(time.RFC3339), id)
}
