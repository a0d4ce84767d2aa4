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

// leftOut says that a member does not know the CA that signs, as it last reported, and what to do; "": it knows it, or has reported nothing.
func (s *State) leftOut(id string) string {
	if len(s.CA) == 0 || s.CARetired == 0 && (len(s.CA) < 2 || s.CAPrepared) || s.Nodes[id].GetState() != clusterv1.NodeState_NODE_STATE_UP {
		return "" // there was no other CA
	}
	signing, err := x509.ParseCertificate(s.CA[0])
	known := s.Statuses[id].GetCaPins()
	if err != nil || len(known) == 0 {
		return ""
	}
	pin := sha256.Sum256(signing.RawSubjectPublicKeyInfo)
	if slices.ContainsFunc(known, func(other []byte) bool { return bytes.Equal(other, pin[:]) }) {
		return ""
	}
	return fmt.Sprintf("the cluster has a new CA since %s, and the node was away while it was replaced: it can believe no curator; delete it (`reeve node delete %s`) and add the machine anew with a new ticket",
		signing.NotBefore.Add(identity.ClockSkew).UTC().Format(time.RFC3339), id)
}
