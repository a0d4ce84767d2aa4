package hostapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/reeveproject/reeve/core/hostapi"
	spiffe "github.com/reeveproject/reeve/proto/identity"
)

// source is go-spiffe's own, on the host socket of an instance.
func source(t *testing.T, socket string) *workloadapi.X509Source {
	t.Helper()
	made, err := workloadapi.NewX509Source(within(t), workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+socket)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made
}

// TestWorkloadAPI: the SPIFFE library of others gets the SVID of the role, and two of them speak to one another by it.
func TestWorkloadAPI(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.issuer.identity())
	server, client := source(t, n.open(remitOf("server.1"))), source(t, n.open(remitOf("client.1")))
	svid, err := server.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	serverID, err := spiffeid.FromString(spiffe.RoleURI(trustDomain, nodeID, "server").String())
	if err != nil {
		t.Fatal(err)
	}
	if svid.ID != serverID {
		t.Fatalf("the SVID is of %s", svid.ID)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", tlsconfig.MTLSServerConfig(server, server, tlsconfig.AuthorizeMemberOf(serverID.TrustDomain())))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("hello")) // the reader checks it
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), tlsconfig.MTLSClientConfig(client, client, tlsconfig.AuthorizeID(serverID)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make([]byte, 5)
	if _, err := conn.Read(got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestWorkloadRenews: a new SVID comes before the old one is over, also while no curator answers for a time.
func TestWorkloadRenews(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	n := newNode(t, func(c *hostapi.Config) { c.SetClock(now) })
	n.identity.Set(n.issuer.identity())
	source := source(t, n.open(remitOf("role.1")))
	first, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{})
	n.issuer.set(func(i *issuer) {
		i.refuse, i.refused = errors.New("no curator answers"), sync.OnceFunc(func() { close(refused) })
	})
	ahead.Store(int64(40 * time.Minute)) // of an hour: a third is left
	select {
	case <-refused:
	case <-within(t).Done():
		t.Fatal("no new SVID is asked for")
	}
	n.issuer.set(func(i *issuer) { i.refuse = nil })
	select {
	case <-source.Updated():
	case <-within(t).Done():
		t.Fatal("there is no new SVID")
	}
	second, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	if second.Certificates[0].Equal(first.Certificates[0]) || second.PrivateKey.Public() == first.PrivateKey.Public() {
		t.Error("the SVID is the former one")
	}
}

// TestWorkloadRotation: a CA that is added is told, and one that is gone takes the SVIDs with it that it signed.
func TestWorkloadRotation(t *testing.T) {
	n := newNode(t, (*hostapi.Config).KeepSVIDs)
	old := n.issuer.identity().CA[0]
	n.identity.Set(n.issuer.identity())
	source := source(t, n.open(remitOf("role.1")))
	domain := spiffeid.RequireTrustDomainFromString(trustDomain)
	await := func(what string, ok func(authorities []*x509.Certificate, leaf *x509.Certificate) bool) {
		t.Helper()
		for {
			// It is looked at only once it was told: go-spiffe reads the bundles without the lock under which it replaces them.
			select {
			case <-source.Updated():
			case <-within(t).Done():
				t.Fatalf("it does not come to %s", what)
			}
			bundle, err := source.GetX509BundleForTrustDomain(domain)
			if err != nil {
				t.Fatal(err)
			}
			svid, err := source.GetX509SVID()
			if err != nil {
				t.Fatal(err)
			}
			if ok(bundle.X509Authorities(), svid.Certificates[0]) {
				return
			}
		}
	}
	before, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	n.issuer.rotate(t)
	n.identity.Set(n.issuer.identity())
	await("two CAs, with the SVID as it was", func(authorities []*x509.Certificate, leaf *x509.Certificate) bool {
		return len(authorities) == 2 && leaf.Equal(before.Certificates[0])
	})
	next := n.issuer.identity()
	next.CA = next.CA[1:]
	n.identity.Set(next)
	await("the new CA only, and an SVID of it", func(authorities []*x509.Certificate, leaf *x509.Certificate) bool {
		return len(authorities) == 1 && !authorities[0].Equal(old) && leaf.CheckSignatureFrom(authorities[0]) == nil
	})
}

// TestWorkloadBundles: for those that only verify.
func TestWorkloadBundles(t *testing.T) {
	n := newNode(t, nil)
	n.identity.Set(n.issuer.identity())
	socket := n.open(remitOf("role.1"))
	bundles, err := workloadapi.FetchX509Bundles(within(t), workloadapi.WithAddr("unix://"+socket))
	if err != nil {
		t.Fatal(err)
	}
	if bundles.Len() != 1 || len(bundles.Bundles()[0].X509Authorities()) != 1 || bundles.Bundles()[0].TrustDomain().Name() != trustDomain {
		t.Errorf("bundles: %v", bundles.Bundles())
	}
	if n.issuer.called() != 0 {
		t.Error("an SVID was issued for it")
	}
}

// TestWorkloadRefusals: without the standard's header, without a curator, and what is not served.
func TestWorkloadRefusals(t *testing.T) {
	n := newNode(t, nil)
	client := workload.NewSpiffeWorkloadAPIClient(connect(t, n.open(remitOf("role.1"))))
	fetch := func(values ...string) error {
		ctx := within(t)
		for _, value := range values {
			ctx = metadata.AppendToOutgoingContext(ctx, "workload.spiffe.io", value)
		}
		stream, err := client.FetchX509SVID(ctx, &workload.X509SVIDRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	bundles := func() error {
		stream, err := client.FetchX509Bundles(within(t), &workload.X509BundlesRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	mustRefuse(t, fetch("true"), codes.Unavailable, "not a member")
	n.identity.Set(n.issuer.identity())
	for _, values := range [][]string{nil, {"false"}, {""}, {"true", "true"}} {
		mustRefuse(t, fetch(values...), codes.InvalidArgument, "workload.spiffe.io")
	}
	mustRefuse(t, bundles(), codes.InvalidArgument, "workload.spiffe.io")
	if n.issuer.called() != 0 {
		t.Error("an SVID was issued all the same")
	}
	n.issuer.set(func(i *issuer) { i.refuse = errors.New("no curator answers") })
	mustRefuse(t, fetch("true"), codes.Unavailable, "no curator answers")
	_, err := client.FetchJWTSVID(metadata.AppendToOutgoingContext(within(t), "workload.spiffe.io", "true"), &workload.JWTSVIDRequest{Audience: []string{"x"}})
	mustRefuse(t, err, codes.Unimplemented)
	_, err = client.ValidateJWTSVID(metadata.AppendToOutgoingContext(within(t), "workload.spiffe.io", "true"), &workload.ValidateJWTSVIDRequest{})
	mustRefuse(t, err, codes.Unimplemented)
}

// TestWorkloadEntry: the service of others has an entry for each of its RPCs, and is not served with one more or one less.
func TestWorkloadEntry(t *testing.T) {
	server := grpc.NewServer()
	defer server.Stop()
	workload.RegisterSpiffeWorkloadAPIServer(server, &workload.UnimplementedSpiffeWorkloadAPIServer{})
	const service = "SpiffeWorkloadAPI"
	info := server.GetServiceInfo()[service]
	if err := hostapi.RefusesServices(map[string]grpc.ServiceInfo{service: info}); err != nil {
		t.Fatal(err)
	}
	for _, method := range info.Methods {
		if err := hostapi.Permit(remitOf("role.1"), "/"+service+"/"+method.Name, nil); err != nil {
			t.Errorf("%s: %v", method.Name, err)
		}
	}
	more, less := info, info
	more.Methods = append(more.Methods[:len(more.Methods):len(more.Methods)], grpc.MethodInfo{Name: "FetchEverything"})
	less.Methods = less.Methods[1:]
	for part, info := range map[string]grpc.ServiceInfo{"FetchEverything": more, info.Methods[0].Name: less} {
		if err := hostapi.RefusesServices(map[string]grpc.ServiceInfo{service: info}); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
	err := hostapi.RefusesServices(map[string]grpc.ServiceInfo{service: info, "grpc.health.v1.Health": {}})
	if err == nil || !strings.Contains(err.Error(), "Health/Check") || strings.Contains(err.Error(), service) {
		t.Errorf("with another service that declares nothing: %v", err)
	}
	mustRefuse(t, hostapi.Permit(remitOf("role.1"), "/"+service+"/FetchEverything", nil), codes.PermissionDenied)
}
