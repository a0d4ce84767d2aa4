package identity_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

func key(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// certificate makes a self-signed certificate for a key.
func certificate(t testing.TB, k ed25519.PrivateKey) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func run(t *testing.T, room *identity.Room, bootstrapped, given *event.Value[identity.Credentials]) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- room.Run(ctx, bootstrapped, given) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestKeepsWhatTheClusterGives(t *testing.T) {
	nodeKey, owner := key(t), key(t).Public().(ed25519.PublicKey)
	config := identity.Config{Log: hclog.NewNullLogger(), Directory: filepath.Join(t.TempDir(), "identity"), Key: nodeKey, ClusterID: "c1", Owner: owner}
	room, err := identity.New(config)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := room.Identity().Get()
	if id.SVID != nil || len(id.CA) != 0 || id.TrustDomain != "c1.reeve" || !id.Owner.Equal(owner) {
		t.Errorf("a new node: %+v", id)
	}
	var bootstrap, renewed event.Value[identity.Credentials]
	stop := run(t, room, &bootstrap, &renewed)
	ca, first, second := certificate(t, key(t)), certificate(t, nodeKey), certificate(t, nodeKey)
	ctx := t.Context()
	bootstrap.Set(identity.Credentials{CA: [][]byte{ca}, SVID: [][]byte{first}})
	if _, err := room.Identity().Wait(ctx, func(id *identity.Identity) bool {
		return id.SVID != nil && len(id.CA) == 1 && string(id.SVID.Certificate[0]) == string(first)
	}); err != nil {
		t.Fatal(err)
	}
	renewed.Set(identity.Credentials{SVID: [][]byte{second}})
	if _, err := room.Identity().Wait(ctx, func(id *identity.Identity) bool { return string(id.SVID.Certificate[0]) == string(second) }); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again, err := identity.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := again.Identity().Get(); id.SVID == nil || string(id.SVID.Certificate[0]) != string(second) || len(id.CA) != 1 {
		t.Errorf("after a restart: %+v", id)
	}
}

func TestRefusesACertificateForAnotherKey(t *testing.T) {
	mine := key(t)
	room, err := identity.New(identity.Config{Log: hclog.NewNullLogger(), Directory: t.TempDir(), Key: mine, ClusterID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	var source, published event.Value[identity.Credentials]
	stop := run(t, room, &source, &published)
	for _, bad := range [][]byte{certificate(t, key(t)), []byte("garbage")} {
		source.Set(identity.Credentials{SVID: [][]byte{bad}})
	}
	good := certificate(t, mine)
	source.Set(identity.Credentials{SVID: [][]byte{good}})
	id, err := room.Identity().Wait(t.Context(), func(id *identity.Identity) bool { return id.SVID != nil })
	if err != nil || string(id.SVID.Certificate[0]) != string(good) {
		t.Errorf("%v, %v", id, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDamagedFiles(t *testing.T) {
	contents := []string{
		"garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n",
	}
	for _, content := range contents {
		dir := t.TempDir()
		config := identity.Config{Log: hclog.NewNullLogger(), Directory: dir, Key: key(t)}
		if err := os.WriteFile(filepath.Join(dir, "svid.pem"), []byte(content), 0o400); err != nil {
			t.Fatal(err)
		}
		room, err := identity.New(config)
		if err != nil {
			t.Fatalf("a damaged SVID keeps the node from starting: %v", err)
		}
		if id, _ := room.Identity().Get(); id.SVID != nil {
			t.Errorf("an SVID out of %q", content)
		}
		if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(content), 0o400); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.New(config); err == nil {
			t.Errorf("a CA out of %q", content)
		}
	}
}
