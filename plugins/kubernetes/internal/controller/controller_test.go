package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/credential"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The test's binary is the plugin that the tests launch, if this environment variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		role.Serve(role.Plugin{Name: "kubernetes", Version: "0.1.0", Roles: []role.Role{pki.Role(), Role()}})
	}
	leaktest.VerifyTestMain(m)
}

func decode(t *testing.T, document string) *Configuration {
	t.Helper()
	c, err := configuration.Decode([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfiguration(t *testing.T) {
	for document, path := range map[string]string{
		``: "", `{}`: "",
		`{"serviceCIDRs": ["10.0.0.0/16", "fd00::/112"], "podCIDRs": ["10.1.0.0/16", "fd01::/48"]}`: "",
		`{"serverNames": ["api.example.org", "192.0.2.1", "*.example.org"]}`:                        "",
		`{"apiServerArguments": ["--event-ttl=2h"], "featureGates": {"A": true}}`:                   "",
		`{"port": 0}`:                                 "/port",
		`{"port": 10257}`:                             "/controllerManagerPort",
		`{"serviceCIDRs": []}`:                        "/serviceCIDRs",
		`{"serviceCIDRs": ["x"]}`:                     "/serviceCIDRs/0",
		`{"serviceCIDRs": ["10.96.0.1/16"]}`:          "/serviceCIDRs/0",
		`{"serviceCIDRs": ["44.0.0.0/8"]}`:            "/serviceCIDRs/0",
		`{"podCIDRs": ["10.96.1.0/24"]}`:              "/podCIDRs/0",
		`{"podCIDRs": ["10.1.0.0/16","10.2.0.0/16"]}`: "/podCIDRs/1",
		`{"clusterDomain": "Not a domain"}`:           "/clusterDomain",
		`{"serverNames": ["no name"]}`:                "/serverNames/0",
		`{"featureGates": {"A,B": true}}`:             "/featureGates",
		`{"apiServerArguments": ["event-ttl"]}`:       "/apiServerArguments/0",
		// What confines the API server is not to be had by the configuration.
		`{"apiServerArguments": ["--etcd-prefix=/"]}`:              "/apiServerArguments/0",
		`{"apiServerArguments": ["--anonymous-auth=true"]}`:        "/apiServerArguments/0",
		`{"controllerManagerArguments": ["--kubeconfig=/x"]}`:      "/controllerManagerArguments/0",
		`{"schedulerArguments": ["--x=1", "--feature-gates=A=1"]}`: "/schedulerArguments/1",
	} {
		_, err := configuration.Decode([]byte(document))
		if path == "" {
			if err != nil {
				t.Errorf("%s: %v", document, err)
			}
			continue
		}
		var wrong *role.ConfigurationError
		if !errors.As(err, &wrong) || len(wrong.Problems) != 1 || wrong.Problems[0].Path != path {
			t.Errorf("%s: %v, and should be refused for %s", document, err, path)
		}
	}
}

func TestGrants(t *testing.T) {
	all := []role.Grant{role.GrantListen("6443"), role.GrantListen("10257"), role.GrantListen("10259")}
	for _, test := range []struct {
		document string
		grants   []role.Grant
		wrong    string
	}{
		{``, all, ""},
		{`{"port": 7443}`, all, "/port"},
		{`{"port": 7443}`, append(slices.Clone(all), role.GrantListen("7443")), ""},
		{`{"port": 7443}`, []role.Grant{role.GrantListen(role.AnyPort)}, ""},
		{``, all[:2], "/schedulerPort"},
		{``, []role.Grant{role.GrantPrivileged()}, ""},
	} {
		if err := checkGrants([]byte(test.document), test.grants); (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s with %v: %v, and should be %q", test.document, test.grants, err, test.wrong)
		}
	}
	if manifest := Role(); len(manifest.Grants) == 0 || checkGrants(nil, manifest.Grants) != nil {
		t.Error("what the manifest asks for does not suffice for the defaults")
	}
}

func TestArguments(t *testing.T) {
	c := decode(t, `{"port": 7443, "featureGates": {"B": false, "A": true}, "apiServerArguments": ["--event-ttl=2h"], "serviceCIDRs": ["10.0.0.0/16", "fd00::/112"]}`)
	at := place{address: "192.0.2.1", store: "/run/x/y.sock", prefix: "/reeve/users/kubernetes/", directory: "/run/x"}
	arguments := c.apiServer(at)
	for _, want := range []string{
		"--etcd-servers=unix:///run/x/y.sock", "--etcd-prefix=/reeve/users/kubernetes/registry", "--etcd-compaction-interval=0", "--lease-reuse-duration-seconds=5", "--secure-port=7443",
		"--feature-gates=A=true,B=false", "--event-ttl=2h", "--anonymous-auth=false", "--service-cluster-ip-range=10.0.0.0/16,fd00::/112",
	} {
		if !slices.Contains(arguments, want) {
			t.Errorf("%s is not among %v", want, arguments)
		}
	}
	if slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "--endpoint-reconciler-type") }) {
		t.Error("the endpoints of the API server are not kept on a node with an address of its own")
	}
	at.address = "127.0.0.2"
	if !slices.Contains(c.apiServer(at), "--endpoint-reconciler-type=none") {
		t.Error("the endpoints of the API server are kept on a node of the loopback interface")
	}
	if addresses := c.serviceAddresses(); !slices.Equal(addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}) {
		t.Errorf("the API server's service has %v", addresses)
	}
}

// TestNodeRanges: whatever range of pods there may be, nodes can get ranges out of it.
func TestNodeRanges(t *testing.T) {
	for pods, want := range map[string]string{
		`["10.1.0.0/16"]`: "", `["fd01::/48"]`: "", `["fd01::/64"]`: "", `["10.1.0.0/16", "fd01::/56"]`: "",
		`["fd00::/16"]`: "32", `["fd01::/112"]`: "120", `["10.1.0.0/16", "fd01::/120"]`: "124",
	} {
		arguments := decode(t, `{"podCIDRs": `+pods+`}`).controllerManager(place{address: "192.0.2.1", directory: "/run/x"})
		got := ""
		for _, argument := range arguments {
			if size, ok := strings.CutPrefix(argument, "--node-cidr-mask-size-ipv6="); ok {
				got = size
			}
		}
		if got != want {
			t.Errorf("%s: nodes get a /%s, and should a /%s", pods, got, want)
		}
	}
}

// published are the values that were set.
type published map[string]string

func (p published) SetValue(name, value string) { p[name] = value }

func TestPublished(t *testing.T) {
	for document, want := range map[string]published{
		``: {ValueServiceCIDRs: "10.96.0.0/16", ValuePodCIDRs: "10.244.0.0/16", ValueClusterDomain: "cluster.local", ValueDNSAddresses: "10.96.0.10"},
		`{"serviceCIDRs": ["fd00::/112", "10.0.0.0/24"], "podCIDRs": ["10.1.0.0/16", "fd01::/48"], "clusterDomain": "example.org"}`: {
			ValueServiceCIDRs: "fd00::/112,10.0.0.0/24", ValuePodCIDRs: "10.1.0.0/16,fd01::/48", ValueClusterDomain: "example.org", ValueDNSAddresses: "fd00::a,10.0.0.10",
		},
		`{"coreDNS": false}`: {ValueServiceCIDRs: "10.96.0.0/16", ValuePodCIDRs: "10.244.0.0/16", ValueClusterDomain: "cluster.local", ValueDNSAddresses: ""},
	} {
		got := published{}
		if decode(t, document).publish(got); !maps.Equal(got, want) {
			t.Errorf("%s: %v", document, got)
		}
	}
}

// TestCoreDNS: the service is at the addresses that workers are told, and the pods have no right that they do not need.
func TestCoreDNS(t *testing.T) {
	for document, want := range map[string]string{
		``:                                 `{"clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}`,
		`{"serviceCIDRs": ["fd00::/112"]}`: `{"clusterIP":"fd00::a","clusterIPs":["fd00::a"],"ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack"}`,
		`{"serviceCIDRs": ["10.0.0.0/16", "fd00::/112"]}`: `{"clusterIP":"10.0.0.10","clusterIPs":["10.0.0.10","fd00::a"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"RequireDualStack"}`,
	} {
		spec := maps.Clone(decode(t, document).dnsServiceObject()["spec"].(object))
		delete(spec, "ports")
		delete(spec, "selector")
		if got, err := json.Marshal(spec); err != nil || string(got) != want {
			t.Errorf("%s: %s (%v), and should be %s", document, got, err, want)
		}
	}
	if config := decode(t, `{"clusterDomain": "example.org"}`).dnsConfig()["data"].(object)["Corefile"].(string); !strings.Contains(config, "kubernetes example.org in-addr.arpa") {
		t.Errorf("it is of another domain: %s", config)
	}
	pod := dnsPod()
	container := pod["containers"].([]object)[0]
	for what, right := range map[string]bool{
		"a user without rights":  pod["securityContext"].(object)["runAsNonRoot"] == true,
		"no way to more rights":  container["securityContext"].(object)["allowPrivilegeEscalation"] == false,
		"a system that it reads": container["securityContext"].(object)["readOnlyRootFilesystem"] == true,
		"no capability":          slices.Equal(container["securityContext"].(object)["capabilities"].(object)["drop"].([]string), []string{"ALL"}),
		"an image of the node":   container["imagePullPolicy"] == "Never",
	} {
		if !right {
			t.Errorf("the pods do not have %s", what)
		}
	}
}

// TestCredentials gets them from a real kubernetes-pki, and looks at the files as the programs do.
func TestCredentials(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	host := cluster.Host(0)
	host.GrantOperators()
	host.Operators.Set(&hostv1.Operators{})
	host.OpenStore(consensustest.NewStore(t).Socket(), pki.RoleName)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := roletest.Launch(t, executable, asPlugin+"=1")
	if err := process.Start(host, pki.RoleName, ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	conn, err := credential.Dial(cluster.Host(1).Instance(t, pki.ControllerRole))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := decode(t, `{"serverNames": ["api.example.org", "192.0.2.9"]}`)
	at := place{address: "192.0.2.1", directory: filepath.Join(t.TempDir(), "files")}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := kubernetesv1.NewPKIServiceClient(conn)
	got, err := c.fetch(ctx, client, at)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(got.Again); left < time.Hour || left > 13*time.Hour {
		t.Errorf("they are renewed in %s", left)
	}
	for name := range issued() {
		if _, err := tls.LoadX509KeyPair(at.file(certificate(name)), at.file(key(name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	entries, err := os.ReadDir(at.directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v", entry.Name(), info)
		}
	}
	served := leafOf(t, at.file(certificate(nameServing)))
	for _, name := range []string{"kubernetes.default.svc.cluster.local", "10.96.0.1", "192.0.2.1", "192.0.2.9", "api.example.org", "127.0.0.1"} {
		if err := served.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	text, err := os.ReadFile(at.file(kubeconfig(nameScheduler)))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil || len(config.Clusters) != 1 || config.Clusters[0].Cluster.Server != "https://192.0.2.1:6443" {
		t.Errorf("the scheduler finds its API server by %s (%v)", text, err)
	}
	// A second time there are other keys, and the same authorities and keys of service accounts.
	same := []string{fileServersCA, fileClientsCA, fileAggregatorsCA, fileAccounts, fileAccountsKey}
	before := read(t, at, same)
	keyBefore := read(t, at, []string{key(nameServing)})
	next, err := c.fetch(ctx, client, at)
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision == 0 || got.Revision != next.Revision || got.AtStart != next.AtStart {
		t.Error("it is told that the authorities have changed")
	}
	if read(t, at, same) != before || read(t, at, []string{key(nameServing)}) == keyBefore {
		t.Error("the keys are the same, or the authorities are not")
	}
}

func read(t *testing.T, at place, names []string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(at.file(name))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func leafOf(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoded, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(decoded.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// short answers with less than was asked for.
type short struct {
	kubernetesv1.PKIServiceClient
	response *kubernetesv1.IssueControllerResponse
}

func (s short) IssueController(context.Context, *kubernetesv1.IssueControllerRequest, ...grpc.CallOption) (*kubernetesv1.IssueControllerResponse, error) {
	return s.response, nil
}

func TestCredentialsThatCannotBeUsed(t *testing.T) {
	certificates := make([][]byte, len(issued()))
	for name, response := range map[string]*kubernetesv1.IssueControllerResponse{
		"nothing":           {},
		"no certificates":   {Certificates: certificates, ServiceAccountKeys: [][]byte{{1}}},
		"no keys":           {Certificates: certificates},
		"fewer than wanted": {Certificates: certificates[1:], ServiceAccountKeys: [][]byte{{1}}},
	} {
		at := place{address: "192.0.2.1", directory: t.TempDir()}
		if _, err := decode(t, "").fetch(t.Context(), short{response: response}, at); err == nil {
			t.Errorf("%s: they are used", name)
		}
		if entries, err := os.ReadDir(at.directory); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v was written (%v)", name, entries, err)
		}
	}
}
