package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The test's binary is the plugin that the tests launch, if this environment variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		role.Serve(role.Plugin{Name: "kubernetes", Version: "0.1.0", Roles: []role.Role{Role()}})
	}
	leaktest.VerifyTestMain(m)
}

const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestMadeOnce: of many that make the authorities at the same time, all have the same ones, and so have later ones.
func TestMadeOnce(t *testing.T) {
	store := consensustest.NewStore(t)
	all := make([]*authorities, 8)
	var group sync.WaitGroup
	for n := range all {
		client := store.Client(t, RoleName)
		group.Go(func() {
			opened, err := open(within(t), client)
			if err != nil {
				t.Error(err)
			}
			all[n] = opened
		})
	}
	group.Wait()
	again, err := open(within(t), store.Client(t, RoleName))
	if err != nil {
		t.Fatal(err)
	}
	for n, each := range all {
		if each == nil || !reflect.DeepEqual(each.trust().GetServers(), again.trust().GetServers()) || !reflect.DeepEqual(each.trust().GetClients(), again.trust().GetClients()) ||
			!reflect.DeepEqual(each.trust().GetAggregators(), again.trust().GetAggregators()) || !reflect.DeepEqual(each.serviceAccounts, again.serviceAccounts) ||
			!each.clients.key.Equal(again.clients.key) {
			t.Errorf("instance %d has others", n)
		}
	}
	if again.servers.certificate.Equal(again.clients.certificate) || bytes.Equal(again.servers.certificate.RawSubjectPublicKeyInfo, again.clients.certificate.RawSubjectPublicKeyInfo) {
		t.Error("two authorities are the same")
	}
}

// TestDamage: what is not whole is neither used nor replaced.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(clientv3.KV) error{
		"a part is gone":    func(kv clientv3.KV) error { _, err := kv.Delete(t.Context(), keyClients); return err },
		"nothing readable":  func(kv clientv3.KV) error { _, err := kv.Put(t.Context(), keyServers, "x"); return err },
		"an empty list":     func(kv clientv3.KV) error { _, err := kv.Put(t.Context(), keyServiceAccounts, "[]"); return err },
		"another one's key": func(kv clientv3.KV) error { return swapKeys(t, kv) },
	} {
		t.Run(name, func(t *testing.T) {
			client := consensustest.NewStore(t).Client(t, RoleName)
			if _, err := open(within(t), client); err != nil {
				t.Fatal(err)
			}
			if err := damage(client); err != nil {
				t.Fatal(err)
			}
			before := revision(t, client)
			if _, err := open(within(t), client); err == nil {
				t.Error("they are used")
			}
			if revision(t, client) != before {
				t.Error("something was written")
			}
		})
	}
}

func revision(t *testing.T, kv clientv3.KV) int64 {
	t.Helper()
	found, err := kv.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return found.Header.Revision
}

// swapKeys puts the key of the clients' authority in the place of that of the servers'.
func swapKeys(t *testing.T, kv clientv3.KV) error {
	t.Helper()
	var lists [2][]stored
	for n, key := range []string{keyServers, keyClients} {
		found, err := kv.Get(t.Context(), key)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(found.Kvs[0].Value, &lists[n]); err != nil {
			return err
		}
	}
	lists[0][0].Key = lists[1][0].Key
	text, err := json.Marshal(lists[0])
	if err != nil {
		return err
	}
	_, err = kv.Put(t.Context(), keyServers, string(text))
	return err
}

// cluster is a running kubernetes-pki and who calls it.
type cluster struct {
	t       *testing.T
	cluster *roletest.Cluster
	process *roletest.Process
	address string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, cluster: roletest.NewCluster(t, 2)}
	host := c.cluster.Host(0)
	host.GrantOperators()
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: owner, Operators: []*hostv1.Operator{
		{Name: "alice", Id: "0000000a", Role: hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR},
		{Name: "bob", Id: "0000000b", Role: hostv1.OperatorRole_OPERATOR_ROLE_VIEWER},
		{Name: "carol", Id: "0000000c", Role: hostv1.OperatorRole_OPERATOR_ROLE_OWNER},
	}})
	host.OpenStore(consensustest.NewStore(t).Socket(), RoleName)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.process = roletest.Launch(t, executable, asPlugin+"=1")
	if err := c.process.Start(host, RoleName, ""); err != nil {
		t.Fatal(err)
	}
	c.process.AwaitReady()
	c.process.Await("serving", func(now *rolev1.WatchResponse) bool {
		for _, endpoint := range now.GetEndpoints() {
			if endpoint.GetName() == Endpoint {
				c.address = endpoint.GetAddress()
			}
		}
		return c.address != ""
	})
	return c
}

const owner = "00112233445566778899aabbccddeeff"

// instance is the service for an instance of a role on the other node.
func (c *cluster) instance(name string) kubernetesv1.PKIServiceClient {
	c.t.Helper()
	return c.dial(c.cluster.Host(1).Instance(c.t, name))
}

func (c *cluster) dial(host *role.Host) kubernetesv1.PKIServiceClient {
	c.t.Helper()
	return c.client("passthrough:///pki", role.Credentials(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return host.Dial(ctx, RoleName, "", Endpoint)
	}))
}

// operator is the service for an operator.
func (c *cluster) operator(session identity.Session) kubernetesv1.PKIServiceClient {
	c.t.Helper()
	certificate, err := c.cluster.Authority().Session(session)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.client("passthrough:///"+c.address, credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, // who serves is not what is tested here
	}))
}

func (c *cluster) client(target string, proof credentials.TransportCredentials, options ...grpc.DialOption) kubernetesv1.PKIServiceClient {
	c.t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(proof))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return kubernetesv1.NewPKIServiceClient(conn)
}

func request(t testing.TB, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// greedy asks for everything that a certificate must not say for the asking.
func greedy(t testing.TB) []byte {
	template := &x509.CertificateRequest{DNSNames: []string{"api.example.org"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 7).To4()}}
	template.Subject.CommonName, template.Subject.Organization = "admin", []string{SupervisorGroup}
	return request(t, template)
}

// verified parses a certificate that the only authority of a kind has to have signed, for a usage.
func verified(t *testing.T, der []byte, authority [][]byte, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(authority[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	if _, err := parsed.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Errorf("the certificate of %s: %v", parsed.Subject, err)
	}
	return parsed
}

func TestController(t *testing.T) {
	c := newCluster(t)
	purposes := []kubernetesv1.ControllerPurpose{
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER,
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_KUBELETS,
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_AGGREGATED,
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_CONTROLLER_MANAGER,
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SCHEDULER,
		kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SUPERVISOR,
	}
	call := &kubernetesv1.IssueControllerRequest{}
	for _, purpose := range purposes {
		call.Requests = append(call.Requests, &kubernetesv1.ControllerCertificateRequest{Purpose: purpose, CertificateRequest: greedy(t)})
	}
	response, err := c.instance(ControllerRole).IssueController(within(t), call, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	trust := response.GetTrust()
	for n, want := range []struct {
		subject   string
		authority [][]byte
		usage     x509.ExtKeyUsage
	}{
		{"CN=kube-apiserver", trust.GetServers(), x509.ExtKeyUsageServerAuth},
		{"CN=reeve:kube-apiserver", trust.GetClients(), x509.ExtKeyUsageClientAuth},
		{"CN=front-proxy-client", trust.GetAggregators(), x509.ExtKeyUsageClientAuth},
		{"CN=system:kube-controller-manager", trust.GetClients(), x509.ExtKeyUsageClientAuth},
		{"CN=system:kube-scheduler", trust.GetClients(), x509.ExtKeyUsageClientAuth},
		{"CN=reeve:kubernetes-controller,O=system:masters", trust.GetClients(), x509.ExtKeyUsageClientAuth},
	} {
		made := verified(t, response.GetCertificates()[n], want.authority, want.usage)
		if made.Subject.String() != want.subject {
			t.Errorf("%s: the subject is %s", purposes[n], made.Subject)
		}
		if served := len(made.DNSNames)+len(made.IPAddresses) > 0; served != (n == 0) {
			t.Errorf("%s: the names are %v and %v", purposes[n], made.DNSNames, made.IPAddresses)
		}
		if made.IsCA || len(made.ExtKeyUsage) != 1 || time.Until(made.NotAfter) > controllerLifetime {
			t.Errorf("%s: it is good for more than it is for", purposes[n])
		}
	}
	if len(response.GetServiceAccountKeys()) != 1 {
		t.Errorf("%d keys of service accounts", len(response.GetServiceAccountKeys()))
	}
	for name, bad := range map[string]*kubernetesv1.IssueControllerRequest{
		"nothing":            {},
		"an unknown purpose": {Requests: []*kubernetesv1.ControllerCertificateRequest{{Purpose: 99, CertificateRequest: greedy(t)}}},
		"no request":         {Requests: []*kubernetesv1.ControllerCertificateRequest{{Purpose: purposes[0], CertificateRequest: []byte("x")}}},
		"another key":        {Requests: []*kubernetesv1.ControllerCertificateRequest{{Purpose: purposes[0], CertificateRequest: ofRSA(t)}}},
		"a broken signature": {Requests: []*kubernetesv1.ControllerCertificateRequest{{Purpose: purposes[0], CertificateRequest: broken(t)}}},
	} {
		if _, err := c.instance(ControllerRole).IssueController(within(t), bad, grpc.WaitForReady(true)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ofRSA(t testing.TB) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// broken is a request that is signed by another key than its own.
func broken(t testing.TB) []byte {
	der, other := request(t, &x509.CertificateRequest{}), request(t, &x509.CertificateRequest{})
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	another, err := x509.ParseCertificateRequest(other)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(other, another.RawTBSCertificateRequest, parsed.RawTBSCertificateRequest, 1)
}

func TestOperators(t *testing.T) {
	c := newCluster(t)
	hour := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, test := range []struct {
		session     identity.Session
		user, group string
	}{
		{identity.Session{ID: owner, Ends: hour}, "reeve:owner", OwnerGroup},
		{identity.Session{Operator: "alice", ID: "0000000a", Ends: hour}, "reeve:operator:alice", OperatorGroup},
		{identity.Session{Operator: "bob", ID: "0000000b", Ends: hour}, "reeve:operator:bob", ViewerGroup},
		{identity.Session{Operator: "carol", ID: "0000000c", Ends: hour}, "reeve:operator:carol", OwnerGroup},
		{identity.Session{Operator: "bob", ID: "0000000b", Ends: time.Now().Add(5 * time.Minute).Truncate(time.Second)}, "reeve:operator:bob", ViewerGroup},
	} {
		client := c.operator(test.session)
		response, err := client.IssueOperator(within(t), &kubernetesv1.IssueOperatorRequest{CertificateRequest: greedy(t)}, grpc.WaitForReady(true))
		if err != nil {
			t.Errorf("%+v: %v", test.session, err)
			continue
		}
		made := verified(t, response.GetCertificate(), response.GetTrust().GetClients(), x509.ExtKeyUsageClientAuth)
		if want := "CN=" + test.user + ",O=" + test.group; made.Subject.String() != want || len(made.DNSNames)+len(made.IPAddresses) > 0 {
			t.Errorf("the certificate is for %s, not %s", made.Subject, want)
		}
		if made.NotAfter.After(test.session.Ends) || time.Until(made.NotAfter) > operatorLifetime || !made.NotAfter.Equal(response.GetExpires().AsTime()) {
			t.Errorf("%+v: the certificate ends at %s, and %s is told", test.session, made.NotAfter, response.GetExpires().AsTime())
		}
		// An operator is no control plane.
		if _, err := client.IssueController(within(t), &kubernetesv1.IssueControllerRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("an operator is given what a control plane works with: %v", err)
		}
	}
	for name, session := range map[string]identity.Session{
		"nobody":            {Operator: "mallory", ID: "0000000a", Ends: hour},
		"one of before":     {Operator: "alice", ID: "00000001", Ends: hour},
		"another owner key": {ID: "ff" + owner[2:], Ends: hour},
	} {
		if _, err := c.operator(session).IssueOperator(within(t), &kubernetesv1.IssueOperatorRequest{CertificateRequest: greedy(t)}); err == nil {
			t.Errorf("%s is given a certificate", name)
		}
	}
}

func TestWorker(t *testing.T) {
	c := newCluster(t)
	purposes := []kubernetesv1.WorkerPurpose{
		kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_CLIENT,
		kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_SERVING,
		kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBE_PROXY,
	}
	call := &kubernetesv1.IssueWorkerRequest{}
	for _, purpose := range purposes {
		call.Requests = append(call.Requests, &kubernetesv1.WorkerCertificateRequest{Purpose: purpose, CertificateRequest: greedy(t)})
	}
	worker := c.instance(WorkerRole)
	if response, err := worker.IssueWorker(within(t), call, grpc.WaitForReady(true)); status.Code(err) != codes.Unavailable {
		t.Errorf("before a controller has published the ranges of services: %v, %v", response, err)
	}
	c.cluster.Host(0).Instance(t, ControllerRole).SetValue(ServiceCIDRsValue, "10.96.0.0/16")
	var response *kubernetesv1.IssueWorkerResponse
	eventually(t, func() (bool, any) {
		var err error
		response, err = worker.IssueWorker(within(t), call, grpc.WaitForReady(true))
		return err == nil, err
	})
	node, trust := c.cluster.Host(1).NodeID(), response.GetTrust()
	for n, want := range []struct {
		subject   string
		authority [][]byte
		usage     x509.ExtKeyUsage
	}{
		{"CN=system:node:" + node + ",O=system:nodes", trust.GetClients(), x509.ExtKeyUsageClientAuth},
		{"CN=system:node:" + node + ",O=system:nodes", trust.GetServers(), x509.ExtKeyUsageServerAuth},
		{"CN=system:kube-proxy", trust.GetClients(), x509.ExtKeyUsageClientAuth},
	} {
		made := verified(t, response.GetCertificates()[n], want.authority, want.usage)
		if made.Subject.String() != want.subject {
			t.Errorf("%s: the subject is %s", purposes[n], made.Subject)
		}
		var names []string
		var addresses []net.IP
		if purposes[n] == kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_SERVING {
			names, addresses = []string{node}, []net.IP{net.IPv4(127, 0, 0, 2).To4()}
		}
		if !slices.Equal(made.DNSNames, names) || !slices.EqualFunc(made.IPAddresses, addresses, net.IP.Equal) {
			t.Errorf("%s: the names are %v and %v, and should be %v and %v", purposes[n], made.DNSNames, made.IPAddresses, names, addresses)
		}
		if made.IsCA || len(made.ExtKeyUsage) != 1 || time.Until(made.NotAfter) > workerLifetime {
			t.Errorf("%s: it is good for more than it is for", purposes[n])
		}
	}
	many := &kubernetesv1.IssueWorkerRequest{}
	for range maxRequests + 1 {
		many.Requests = append(many.Requests, call.GetRequests()[0])
	}
	for name, bad := range map[string]*kubernetesv1.IssueWorkerRequest{
		"nothing":            {},
		"too much":           many,
		"no purpose":         {Requests: []*kubernetesv1.WorkerCertificateRequest{{CertificateRequest: greedy(t)}}},
		"an unknown purpose": {Requests: []*kubernetesv1.WorkerCertificateRequest{{Purpose: 99, CertificateRequest: greedy(t)}}},
		"no request":         {Requests: []*kubernetesv1.WorkerCertificateRequest{{Purpose: purposes[0], CertificateRequest: []byte("x")}}},
		"another key":        {Requests: []*kubernetesv1.WorkerCertificateRequest{{Purpose: purposes[0], CertificateRequest: ofRSA(t)}}},
		"a broken signature": {Requests: []*kubernetesv1.WorkerCertificateRequest{{Purpose: purposes[0], CertificateRequest: broken(t)}}},
		"one of two is bad":  {Requests: []*kubernetesv1.WorkerCertificateRequest{call.GetRequests()[0], {Purpose: purposes[1], CertificateRequest: broken(t)}}},
	} {
		if answer, err := worker.IssueWorker(within(t), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, %v", name, answer, err)
		}
	}

	// Neither does a worker get what others are given, nor others what a worker is.
	if _, err := worker.IssueController(within(t), &kubernetesv1.IssueControllerRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a worker is a control plane: %v", err)
	}
	if _, err := worker.IssueOperator(within(t), &kubernetesv1.IssueOperatorRequest{CertificateRequest: greedy(t)}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a worker is an operator: %v", err)
	}
	if _, err := c.instance(ControllerRole).IssueWorker(within(t), call, grpc.WaitForReady(true)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a control plane is a worker: %v", err)
	}
	session := identity.Session{ID: owner, Ends: time.Now().Add(time.Hour).Truncate(time.Second)}
	if _, err := c.operator(session).IssueWorker(within(t), call, grpc.WaitForReady(true)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the owner is a worker: %v", err)
	}
}

// TestAddressesOfWorkers: what a kubelet serves with names the addresses that the cluster has of its node, and there is none while it has none.
func TestAddressesOfWorkers(t *testing.T) {
	all, err := open(within(t), consensustest.NewStore(t).Client(t, RoleName))
	if err != nil {
		t.Fatal(err)
	}
	const node = "reeve-1"
	controls := []*hostv1.DirectoryRole{{Role: ControllerRole, Values: map[string]string{ServiceCIDRsValue: "10.96.0.0/16,fd00:96::/112"}}}
	for name, test := range map[string]struct {
		directory *hostv1.Directory
		want      []string
	}{
		"no directory yet":    {nil, nil},
		"no such node":        {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: "reeve-2", Addresses: []string{"192.0.2.2"}}}}, nil},
		"no address yet":      {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: "reeve-2", Roles: controls}, {NodeId: node}}}, nil},
		"none that is usable": {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: "reeve-2", Roles: controls}, {NodeId: node, Addresses: []string{"api.example.org", "fe80::1%eth0"}}}}, nil},
		"no ranges yet":       {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: node, Addresses: []string{"192.0.2.1", "10.96.0.1"}}}}, nil},
		"of both kinds": {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
			{NodeId: "reeve-2", Addresses: []string{"192.0.2.2"}, Roles: controls}, {NodeId: node, Addresses: []string{"192.0.2.1", "::ffff:192.0.2.3", "2001:db8::1"}},
		}}, []string{"192.0.2.1", "192.0.2.3", "2001:db8::1"}},
		"those of API servers": {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
			{NodeId: "reeve-2", Addresses: []string{"192.0.2.2"}, Assigned: &hostv1.AssignedRoles{Roles: []string{ControllerRole}}, Roles: controls},
			{NodeId: node, Addresses: []string{"0.0.0.0", "192.0.2.2", "::ffff:192.0.2.2", "10.96.0.1", "fd00:96::1", "192.0.2.1"}},
		}}, []string{"192.0.2.1"}},
		"a control plane's own": {&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
			{NodeId: node, Addresses: []string{"192.0.2.1"}, Assigned: &hostv1.AssignedRoles{Roles: []string{ControllerRole}}, Roles: controls},
		}}, []string{"192.0.2.1"}},
	} {
		s := &service{directory: func() *hostv1.Directory { return test.directory }}
		_, says, err := s.workerLeaf(all, kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_SERVING, node)
		if test.want == nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var got []string
		for _, address := range says.addresses {
			got = append(got, address.String())
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v (%v), and should be %v", name, got, err, test.want)
		}
	}
}

// TestOtherRoles: a role that is not the control plane is let in for nothing, and the control plane is no operator.
func TestOtherRoles(t *testing.T) {
	c := newCluster(t)
	if _, err := c.instance("lighthouse").GetTrust(within(t), &kubernetesv1.GetTrustRequest{}); err == nil {
		t.Error("any role is let in")
	} else if !strings.Contains(err.Error(), "not authorised") && status.Code(err) != codes.Unavailable {
		t.Errorf("it is refused for something else: %v", err)
	}
	if _, err := c.instance(ControllerRole).IssueOperator(within(t), &kubernetesv1.IssueOperatorRequest{CertificateRequest: greedy(t)}, grpc.WaitForReady(true)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a control plane is an operator: %v", err)
	}
}
