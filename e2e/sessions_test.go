package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// publicKey is the public half of a key in a file, as commands take it.
func publicKey(t *testing.T, file string) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(devcluster.ReadKey(t, file).Public().(ed25519.PublicKey))
}

// selfSigned proves a key by itself.
func selfSigned(t *testing.T, file string) tls.Certificate {
	t.Helper()
	certificate, err := identity.SelfSigned(devcluster.ReadKey(t, file), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// dial makes a connection that shows a certificate. Who the server is does not matter here.
func dial(t *testing.T, address string, certificate tls.Certificate) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate},
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// login gets a certificate of a session, for a new key.
func login(t *testing.T, address string, proof tls.Certificate, lifetime, session time.Duration) (tls.Certificate, *clusterv1.LoginResponse) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := clusterv1.NewManagementServiceClient(dial(t, address, proof)).Login(t.Context(), &clusterv1.LoginRequest{
		PublicKey: public, LifetimeSeconds: uint32(lifetime.Seconds()), SessionSeconds: uint32(session.Seconds()),
	})
	if err != nil {
		t.Fatal(err)
	}
	certificate := tls.Certificate{Certificate: answer.GetCertificate(), PrivateKey: private}
	if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	return certificate, answer
}

// atCurator and atNode say how a call is answered to whoever shows a certificate.
func atCurator(t *testing.T, address string, certificate tls.Certificate) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := clusterv1.NewManagementServiceClient(dial(t, address, certificate)).ListNodes(ctx, &clusterv1.ListNodesRequest{})
	return status.Code(err)
}

func atNode(t *testing.T, address string, certificate tls.Certificate) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := nodev1.NewNodeServiceClient(dial(t, address, certificate)).GetStatus(ctx, &nodev1.GetStatusRequest{})
	return status.Code(err)
}

// TestCommandsRenewTheirSession gives a context a certificate that is past half of its life: the next command renews it.
func TestCommandsRenewTheirSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	curator := c.Up(t).Cluster.Curators[0]
	reeve(t, c, exitOK, "login", "--name", "lab", "--dir", c.Directory)
	certificate, _ := login(t, curator, selfSigned(t, c.Path("owner.key")), 2*time.Minute, time.Hour)

	file := filepath.Join(c.Home, "config", "reeve", "sessions", "lab.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]any
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	var chain strings.Builder
	for _, link := range certificate.Certificate {
		_ = pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: link})
	}
	kept["key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	kept["certificates"] = chain.String()
	// As if it had been received long ago.
	kept["received"] = time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	aged, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, aged, 0o600); err != nil {
		t.Fatal(err)
	}
	reeve(t, c, exitOK, "node", "list", "--context", "lab")
	text, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(kept["certificates"].(string)))
	if block == nil {
		t.Fatal("the session has no certificate")
	}
	now, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !now.NotAfter.After(certificate.Leaf.NotAfter.Add(10 * time.Minute)) {
		t.Errorf("the certificate ends at %s, and was not renewed: before it ended at %s", now.NotAfter, certificate.Leaf.NotAfter)
	}
	// The key of the owner was not needed for that, and is not needed now.
	if err := os.Rename(c.Path("owner.key"), c.Path("elsewhere.key")); err != nil {
		t.Fatal(err)
	}
	reeve(t, c, exitOK, "node", "list", "--context", "lab")
	if err := os.Rename(c.Path("elsewhere.key"), c.Path("owner.key")); err != nil {
		t.Fatal(err)
	}
}

// TestOwnerReplaced puts another owner key in the place of one that was lost: the old one, and what it began, is worth nothing anywhere.
func TestOwnerReplaced(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		up := c.Up(t)
		addOperator(t, c, "alice", "operator")
		old := c.Path("owner.key")
		oldSession, _ := login(t, up.Cluster.Curators[0], selfSigned(t, old), time.Hour, 0)
		aliceSession, _ := login(t, up.Cluster.Curators[0], selfSigned(t, filepath.Join(c.Home, "alice.key")), time.Hour, 0)
		file, public := filepath.Join(c.Home, "new.key"), filepath.Join(c.Home, "new.pub")
		key := reeve(t, c, exitOK, "owner", "key", file).Stdout
		if err := os.WriteFile(public, []byte(key), 0o644); err != nil {
			t.Fatal(err)
		}
		// Not from afar, whoever asks.
		reeve(t, c, exitRefused, "owner", "replace", "--public-key", public, "--context", "alice")
		c.MustReeve(t, "owner", "replace", "--public-key", public, "--dry-run")
		c.MustReeve(t, "node", "list")
		c.MustReeve(t, "owner", "replace", "--public-key", public)

		check := func(when string) {
			t.Helper()
			s := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
			curator, node := s.Cluster.Curators[0], s.Node.APIAddress
			for name, test := range inOrder(map[string]struct {
				proof tls.Certificate
				ok    bool
			}{
				"the old owner key":        {selfSigned(t, old), false},
				"a session of the old key": {oldSession, false},
				"the new owner key":        {selfSigned(t, file), true},
				"a session of an operator": {aliceSession, true},
			}) {
				// The node hears of it from the curator.
				eventually.True(t, patience, when+": what "+name+" is worth", func() (bool, string) {
					one, two := atCurator(t, curator, test.proof), atNode(t, node, test.proof)
					refused := func(code codes.Code) bool { return code == codes.Unauthenticated || code == codes.Unavailable }
					ok := one == codes.OK && two == codes.OK
					if !test.ok {
						ok = refused(one) && refused(two)
					}
					return ok, "at the curator " + one.String() + ", at the node " + two.String()
				})
			}
		}
		check("replaced")
		c.Kill(t, c.Core(t).PID)
		c.Up(t)
		check("reeved was killed")
		c.Down(t)
		c.Up(t)
		check("down and up")
		entries := c.Audit(t, "--dir", c.Directory, "--owner-key", file)
		found := 0
		for _, entry := range entries {
			if entry.RPC == "ReplaceOwner" && entry.Code == "OK" && strings.HasPrefix(entry.Parameters["requester"], "user ") {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d entries of the audit log say that the owner was replaced, want 1: %+v", found, entries)
		}
		// The dev directory has the old key, and the operator is still one. Without any key, the node starts all the same.
		refusedCommand(t, c, []string{"owner"}, "node", "list")
		reeve(t, c, exitOK, append([]string{"login", "--name", "alice", "--key", filepath.Join(c.Home, "alice.key")}, fromAfar(t, c)...)...)
		reeve(t, c, exitOK, "whoami", "--context", "alice")
		c.Down(t)
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
		c.Up(t)
		if _, err := os.Stat(old); err == nil {
			t.Error("a cluster that has an owner was given another key, which is worth nothing")
		}
		c.MustReeve(t, "node", "list", "--owner-key", file)
	})
}
