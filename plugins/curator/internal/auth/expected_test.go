package auth_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// key is one that is the same in every run.
func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
}

func public(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

// Whoever may call the cluster is expected, and nobody else: neither a node that was removed or has not come in, nor whose session is another cluster's, has ended, or is of somebody who was revoked.
func TestExpected(t *testing.T) {
	const cluster, operatorID = "c0ffee", "00112233445566778899aabbccddeeff"
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	authority := func(seed byte) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: noon.AddDate(-1, 0, 0), NotAfter: noon.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{identity.ClusterURI(identity.TrustDomain(cluster))},
		}
		return signed(t, template, template, key(seed), key(seed))
	}
	ours, foreign := authority(1), authority(2)
	session := func(by *x509.Certificate, signer byte, of identity.Session) []*x509.Certificate {
		return []*x509.Certificate{signed(t, &x509.Certificate{
			SerialNumber: big.NewInt(2), NotBefore: noon.Add(-time.Minute), NotAfter: noon.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, URIs: []*url.URL{identity.SessionURI(identity.TrustDomain(cluster), of)},
		}, by, key(99), key(signer))}
	}
	pinned := func(seed byte) []*x509.Certificate {
		certificate, err := identity.SelfSigned(key(seed), noon)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(certificate.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return []*x509.Certificate{leaf}
	}
	state := &store.State{
		Cluster: &curatorv1.Cluster{ClusterId: cluster, OwnerPublicKey: public(10)}, CA: [][]byte{ours.Raw},
		Operators: map[string]*clusterv1.Operator{"alice": {Name: "alice", Id: operatorID, PublicKey: public(11)}}, Nodes: make(map[string]*clusterv1.NodeRecord),
	}
	for n, nodeState := range []clusterv1.NodeState{
		clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING, clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, clusterv1.NodeState_NODE_STATE_NEW,
	} {
		node := &clusterv1.NodeRecord{Id: identity.NodeID(public(byte(20 + n))), PublicKey: public(byte(20 + n)), JoinPublicKey: public(byte(30 + n)), State: nodeState}
		state.Nodes[node.Id] = node
	}
	ends := noon.Add(8 * time.Hour)
	for name, test := range map[string]struct {
		chain []*x509.Certificate
		want  bool
	}{
		"the owner":                  {pinned(10), true},
		"an operator":                {pinned(11), true},
		"nobody":                     {pinned(12), false},
		"a node":                     {pinned(20), true},
		"a node that leaves":         {pinned(21), true},
		"a node that was removed":    {pinned(22), false},
		"a node that waits":          {pinned(23), false},
		"a node's join key":          {pinned(30), true},
		"a removed node's join key":  {pinned(32), false},
		"a session":                  {session(ours, 1, identity.Session{Operator: "alice", ID: operatorID, Ends: ends}), true},
		"the owner's session":        {session(ours, 1, identity.Session{ID: identity.OwnerKeyID(public(10)), Ends: ends}), true},
		"a former owner's session":   {session(ours, 1, identity.Session{ID: identity.OwnerKeyID(public(12)), Ends: ends}), false},
		"a revoked session":          {session(ours, 1, identity.Session{Operator: "alice", ID: "ff112233445566778899aabbccddeeff", Ends: ends}), false},
		"the session of nobody":      {session(ours, 1, identity.Session{Operator: "bob", ID: operatorID, Ends: ends}), false},
		"a session that has ended":   {session(ours, 1, identity.Session{Operator: "alice", ID: operatorID, Ends: noon.Add(-time.Second)}), false},
		"a session that was made up": {session(foreign, 2, identity.Session{Operator: "alice", ID: operatorID, Ends: ends}), false},
	} {
		if got := auth.Expected(test.chain, state, noon); got != test.want {
			t.Errorf("%s: expected %t", name, got)
		}
	}
}

func signed(t *testing.T, template, parent *x509.Certificate, of, by ed25519.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// records counts what is asked of the store.
type records struct {
	auth.Records
	asked []string
}

func (r *records) ReadEpoch(context.Context) (uint64, error) {
	r.asked = append(r.asked, "epoch")
	return 7, nil
}

func (r *records) ReadNode(context.Context, string) (*store.State, error) {
	r.asked = append(r.asked, "node")
	return nil, errors.New("away")
}

// Whoever cannot be known costs the store one question, which all share who come at the same time, and nothing about the caller.
func TestNobodyIsNotAskedFor(t *testing.T) {
	snapshots := new(event.Value[*cache.Snapshot])
	snapshots.Set(&cache.Snapshot{State: &store.State{Cluster: &curatorv1.Cluster{ClusterId: "c0ffee", Format: store.Format, OwnerPublicKey: public(10)}, Epoch: 7}})
	certificate, err := identity.SelfSigned(key(12), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}})
	asked := new(records)
	if _, err := auth.NewAuthenticator(asked, snapshots, time.Now).Authenticate(ctx); status.Code(answer.Error(err)) != codes.Unauthenticated {
		t.Errorf("a stranger is told %v", err)
	}
	if len(asked.asked) != 1 {
		t.Errorf("the store is asked for %q", asked.asked)
	}
}
