// Package snapshottest makes files of snapshots for tests.
package snapshottest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// Root makes a CA as a cluster has one: its certificate, DER, and its key.
func Root(t testing.TB, cluster string) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, URIs: []*url.URL{identity.ClusterURI(identity.TrustDomain(cluster))},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// Rehearsed makes the header of a good scheduled snapshot with a payload, of a cluster that there is not.
func Rehearsed(t testing.TB, payload []byte) *snapshot.Header {
	t.Helper()
	const cluster = "c-0123"
	sum := func(of []byte) string { return fmt.Sprintf("%x", sha256.Sum256(of)) }
	manifest := &snapshot.Manifest{
		ClusterID: cluster, NodeID: "reeve-1", MemberID: "8e9e05c52164694d", Time: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC),
		Revision: 4711, CompactRevision: 12, ReeveVersion: "0.1.0", Compression: snapshot.Compression, Recipient: "age1abc",
		DatabaseSize: 20480, DatabaseSHA256: sum([]byte("database")), PayloadSize: int64(len(payload)), PayloadSHA256: sum(payload),
		Rehearsal: &snapshot.Rehearsal{Keys: 12},
	}
	line, err := manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := Root(t, cluster)
	header, err := snapshot.Sign(line, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return header
}
