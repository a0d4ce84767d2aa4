package server_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// csr makes a certificate request for a key that asks for far more than it gets.
func csr(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		DNSNames: []string{identity.CuratorName(identity.TrustDomain(clusterID))},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func p256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestIssueRoleSVID(t *testing.T) {
	c := newCluster(t)
	for _, key := range []crypto.Signer{newKey(t), p256(t)} {
		before := time.Now().Truncate(time.Second)
		response, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, key)})
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		root, err := x509.ParseCertificate(response.GetCaCertificates()[0])
		if err != nil {
			t.Fatal(err)
		}
		domain := spiffeid.RequireTrustDomainFromString(identity.TrustDomain(clusterID))
		id, chain, err := x509svid.ParseAndVerify(response.GetSvid(), x509bundle.FromX509Authorities(domain, []*x509.Certificate{root}))
		if err != nil {
			t.Fatal(err)
		}
		leaf := chain[0][0]
		if want := identity.RoleURI(domain.Name(), c.id, "store").String(); id.String() != want {
			t.Errorf("it is for %s, want %s", id, want)
		}
		if leaf.NotAfter.Before(before.Add(time.Hour)) || leaf.NotAfter.After(after.Add(time.Hour)) || leaf.NotBefore.After(after.Add(-time.Minute)) {
			t.Errorf("it is valid from %s to %s", leaf.NotBefore, leaf.NotAfter)
		}
		if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(leaf.PublicKey) || len(leaf.DNSNames) != 0 || leaf.IsCA {
			t.Errorf("it carries %v, %q, CA %v", leaf.PublicKey, leaf.DNSNames, leaf.IsCA)
		}
	}

	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := csr(t, p256(t))
	forged[len(forged)-1] ^= 1
	for name, refused := range map[string]struct {
		der  []byte
		says string
	}{
		"RSA": {csr(t, weak), "RSA"}, "another curve": {csr(t, other), "P-256"}, "not signed by its key": {forged, "signed"},
		"nothing": {nil, "0 bytes"}, "nonsense": {[]byte("nonsense"), "PKCS #10"}, "large": {make([]byte, 1<<20), "bytes"},
	} {
		_, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: refused.der})
		if wantCode(t, err, codes.InvalidArgument, "certificate_request", refused.says); t.Failed() {
			t.Fatal(name)
		}
	}
	ask := func(client clusterv1.NodeServiceClient, role string) error {
		_, err := client.IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: role, CertificateRequest: csr(t, newKey(t))})
		return err
	}
	wantCode(t, ask(c.asNode(), "hostsfile"), codes.NotFound, "hostsfile", c.id)
	wantCode(t, ask(c.asNode(), "no/role"), codes.InvalidArgument, "role")
	key := c.secondNode("hostsfile", "store")
	second := identity.NodeID(public(key))
	// A node speaks for its own roles only.
	wantCode(t, ask(c.asOther(key), "api"), codes.NotFound, second)
	if err := ask(c.asOther(key), "hostsfile"); err != nil {
		t.Error(err)
	}
	// A role that leaves needs its identity until it has left.
	c.tell(c.id, second)
	if _, err := c.removeRole(second, "store"); err != nil {
		t.Fatal(err)
	}
	if err := ask(c.asOther(key), "store"); err != nil {
		t.Error(err)
	}
	c.tell(c.id)
	wantCode(t, ask(c.asOther(key), "store"), codes.NotFound, "store")
	c.setState(second, stateStandby)
	wantCode(t, ask(c.asOther(key), "hostsfile"), codes.Unauthenticated, "no member")
}

// certificates lists what is in use, each as its kind, its subject and its use.
func (c *cluster) certificates() (phase clusterv1.CAPhase, all []string) {
	c.t.Helper()
	response, err := c.asOwner().ListCertificates(c.t.Context(), &clusterv1.ListCertificatesRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	last := time.Time{}
	for _, certificate := range response.GetCertificates() {
		kind := strings.TrimPrefix(certificate.GetKind().String(), "CERTIFICATE_KIND_")
		subject := strings.NewReplacer(identity.TrustDomain(clusterID), "TD", c.id, "FIRST").Replace(certificate.GetSubject())
		all = append(all, kind+" "+subject+": "+certificate.GetUse())
		if len(certificate.GetFingerprint()) != 32 || certificate.GetNotAfter().AsTime().Before(last) || certificate.GetNotBefore() == nil {
			c.t.Errorf("%v", certificate)
		}
		last = certificate.GetNotAfter().AsTime()
	}
	return response.GetPhase(), all
}

// ofFirstNode makes a curator one of the first node.
func (c *cluster) ofFirstNode(config *server.Config) { config.NodeID, config.Role = c.id, "api" }

func TestListCertificates(t *testing.T) {
	c := newCluster(t)
	start(t, etcd, c.prefix, c.ofFirstNode).ready()
	ask := func() {
		t.Helper()
		if _, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"ROLE spiffe://TD/node/FIRST/role/store: identifies the role",
		"NODE spiffe://TD/node/FIRST: identifies the node",
		"CURATOR spiffe://TD/node/FIRST/role/api: serves the cluster API",
		"CA CN=Reeve cluster CA TD: signs",
	}
	// However often they are renewed, there is one of each.
	for range 3 {
		ask()
		phase, all := c.certificates()
		if diff := cmp.Diff(want, all); diff != "" || phase != clusterv1.CAPhase_CA_PHASE_STEADY {
			t.Errorf("%s: %s", phase, diff)
		}
	}
	var paged []string
	for after, more := "", true; more; more = after != "" {
		page, err := c.asOwner().ListCertificates(t.Context(), &clusterv1.ListCertificatesRequest{Limit: 1, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, certificate := range page.GetCertificates() {
			paged = append(paged, strings.TrimPrefix(certificate.GetKind().String(), "CERTIFICATE_KIND_"))
		}
		if page.GetPhase() != clusterv1.CAPhase_CA_PHASE_STEADY || len(paged) > len(want) {
			t.Fatalf("%v, after %v", page, paged)
		}
		after = page.GetNext()
	}
	slices.Sort(paged)
	if diff := cmp.Diff([]string{"CA", "CURATOR", "NODE", "ROLE"}, paged); diff != "" {
		t.Errorf("by pages: %s", diff)
	}
	// What nobody can read, and what is of nobody, is not in it.
	stranger := identity.NodeID(public(newKey(t)))
	if _, err := store.New(store.Config{Client: c.client(), AnswerWithin: patience}).NoteIssued(t.Context(), store.Issued{Node: stranger, Certificate: c.svid.Certificate[0]}); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"issued/node/" + c.id + "/a/b": "x", "issued/role/" + c.id + "/api": "\xff", "issued/nonsense": "", "issued/role/" + c.id + "/gone": "\n\x01x"} {
		if _, err := c.client().Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, all := c.certificates(); len(all) != len(want) {
		t.Errorf("%v", all)
	}
	// Each has an end of its own, and no lease for that.
	got, err := c.client().Get(t.Context(), "issued/role/"+c.id+"/store")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// trusting connects as the owner who trusts some certificates only.
func (c *cluster) trusting(certificates ...[]byte) *grpc.ClientConn {
	c.t.Helper()
	roots := x509.NewCertPool()
	for _, der := range certificates {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			c.t.Fatal(err)
		}
		roots.AddCert(root)
	}
	own := selfSigned(c.t, c.owner)
	conn, err := grpc.NewClient("passthrough:///"+c.curator.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: identity.CuratorName(identity.TrustDomain(clusterID)), Certificates: []tls.Certificate{*own},
	})))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func pin(t *testing.T, der []byte) []byte {
	t.Helper()
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return sum[:]
}

// reaches waits until a client that trusts some certificates only reaches the curator, or does not.
func (c *cluster) reaches(want bool, certificates ...[]byte) {
	c.t.Helper()
	for ctx := inTime(c.t); ; {
		conn := c.trusting(certificates...)
		_, err := clusterv1.NewManagementServiceClient(conn).GetClusterInfo(ctx, &clusterv1.GetClusterInfoRequest{})
		_ = conn.Close() // an address may have only so many
		if (err == nil) == want {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatalf("a client reaches the curator: %v, want %v", err, want)
		}
	}
}

func TestRotateCA(t *testing.T) {
	c := newCluster(t)
	key := c.secondNode()
	second := identity.NodeID(public(key))
	rotate := func(step clusterv1.CAStep, force, dry bool) (*clusterv1.RotateCAResponse, error) {
		return clusterv1.NewManagementServiceClient(c.dial(c.curator, selfSigned(t, c.owner))).RotateCA(inTime(t), &clusterv1.RotateCARequest{Step: step, Force: force, DryRun: dry})
	}
	const prepare, activate, retire = clusterv1.CAStep_CA_STEP_PREPARE, clusterv1.CAStep_CA_STEP_ACTIVATE, clusterv1.CAStep_CA_STEP_RETIRE
	old := c.ca[0]

	_, err := rotate(0, false, false)
	wantCode(t, err, codes.InvalidArgument, "step")
	_, err = rotate(activate, true, false)
	wantCode(t, err, codes.FailedPrecondition, "steady", "prepare")
	if dry, err := rotate(prepare, false, true); err != nil || dry.GetPhase() != clusterv1.CAPhase_CA_PHASE_PREPARED || len(dry.GetWaiting()) != 2 {
		t.Errorf("%v, %v", dry, err)
	}
	if phase, all := c.certificates(); phase != clusterv1.CAPhase_CA_PHASE_STEADY || len(all) != 2 {
		t.Errorf("after a dry run: %s, %v", phase, all)
	}
	prepared, err := rotate(prepare, false, false)
	if err != nil || prepared.GetPhase() != clusterv1.CAPhase_CA_PHASE_PREPARED || len(prepared.GetWaiting()) != 2 {
		t.Fatalf("%v, %v", prepared, err)
	}
	w := watch(t, c.asNode())
	told := w.await("both", func(r *clusterv1.WatchResponse) bool { return len(r.GetCaCertificates()) == 2 }).GetCaCertificates()
	next := told[1]
	if string(told[0]) != string(old) {
		t.Error("the new one signs already")
	}
	c.reaches(true, old)
	c.reaches(false, next)

	_, err = rotate(prepare, false, false)
	wantCode(t, err, codes.FailedPrecondition, "prepared", "activate")
	report := func(client clusterv1.NodeServiceClient, certificates ...[]byte) {
		t.Helper()
		status := new(clusterv1.NodeStatus)
		for _, der := range certificates {
			status.CaPins = append(status.CaPins, pin(t, der))
		}
		if _, err := client.ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	report(c.asNode(), old, next)
	report(c.asOther(key), old)
	_, err = rotate(activate, false, false)
	wantCode(t, err, codes.FailedPrecondition, "waits for 1: ", second)
	if dry, err := rotate(activate, true, true); err != nil || dry.GetPhase() != clusterv1.CAPhase_CA_PHASE_ACTIVE || len(dry.GetLeftOut()) != 1 || !contains(dry.GetLeftOut()[0], second) {
		t.Errorf("%v, %v", dry, err)
	}
	report(c.asOther(key), next, old)
	if activated, err := rotate(activate, false, false); err != nil || len(activated.GetLeftOut()) != 0 {
		t.Fatal(activated, err)
	}
	// The curator serves by the new one, and takes what the old one has signed.
	c.reaches(true, next)
	c.reaches(false, old)
	c.ca = [][]byte{next}
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Errorf("with an SVID of the old CA: %v", err)
	}
	if phase, all := c.certificates(); phase != clusterv1.CAPhase_CA_PHASE_ACTIVE || !contains(strings.Join(all, "\n"), "NODE spiffe://TD/node/FIRST: identifies the node, signed by the old CA") ||
		!contains(strings.Join(all, "\n"), "trusted until it is retired") {
		t.Errorf("%s: %v", phase, all)
	}
	if _, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
		t.Fatal(err)
	}
	_, err = rotate(retire, false, false)
	wantCode(t, err, codes.FailedPrecondition, "waits for 2: ", "node "+c.id+" has a certificate of the old CA until", "node "+second+" has not asked")
	for _, node := range []struct {
		client clusterv1.NodeServiceClient
		key    ed25519.PrivateKey
	}{{c.asNode(), c.node}, {c.asOther(key), key}} {
		response, err := node.client.IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if node.key.Equal(c.node) {
			c.svid = certificate(c.node, response.GetSvid())
		}
	}
	retired, err := rotate(retire, false, false)
	if err != nil || retired.GetPhase() != clusterv1.CAPhase_CA_PHASE_STEADY || len(retired.GetWaiting()) != 0 {
		t.Fatalf("%v, %v", retired, err)
	}
	if _, desired := c.stored(); desired.GetPeerAuthorities() != 1 {
		t.Errorf("the CA of the store's members is to be replaced %d times, want once", desired.GetPeerAuthorities())
	}
	if _, err := c.asNode().Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Errorf("with an SVID of the new CA: %v", err)
	}
	if phase, all := c.certificates(); phase != clusterv1.CAPhase_CA_PHASE_STEADY || contains(strings.Join(all, "\n"), "old") {
		t.Errorf("%s: %v", phase, all)
	}
	// And a curator that starts now.
	c.curator = start(t, etcd, c.prefix, nil).ready()
	c.reaches(true, next)
	got, err := c.client().Get(t.Context(), "authority/next")
	if err != nil || len(got.Kvs) != 0 {
		t.Errorf("the key of the rotation is kept: %v, %v", got, err)
	}
	// Of a node that knew the old one only when it was last heard of, operators are told.
	problem := func() string {
		response, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: second})
		if err != nil {
			t.Fatal(err)
		}
		return response.GetNode().GetProblem()
	}
	if got := problem(); contains(got, "new CA") {
		t.Errorf("of a node that knows the new CA: %s", got)
	}
	report(c.asOther(key), old)
	if got := problem(); !contains(got, "the cluster has a new CA since") || !contains(got, "reeve node delete "+second) {
		t.Errorf("of a node that does not know it: %q", got)
	}
	// Whoever holds what the old one signed proves nothing by it.
	if _, err := rotate(prepare, false, false); err != nil {
		t.Errorf("the next rotation: %v", err)
	}
}
