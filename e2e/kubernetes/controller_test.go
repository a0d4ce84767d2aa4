package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/suite"
)

var shared = suite.Suite{}

func TestMain(m *testing.M) {
	if where := os.Getenv(storeVariable); where != "" {
		tryStore(where)
	}
	shared.Main(m, "../..", "rk")
}

// soon is how long a control plane may take to be well, also on a loaded machine.
const soon = 10 * time.Minute

const (
	pki        = "kubernetes-pki"
	controller = "kubernetes-controller"
)

// components are the programs of a control plane.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// plane is a cluster with a control plane of Kubernetes.
type plane struct {
	*devcluster.Cluster
	plugin     string
	kubeconfig string
}

// newPlane makes a cluster and gives its node both roles. The configuration of the controller says, besides its ports, what more says: members of a JSON object.
func newPlane(t *testing.T, c *devcluster.Cluster, more ...string) *plane {
	t.Helper()
	plugin, err := shared.Programs.Kubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{Cluster: c, plugin: plugin, kubeconfig: filepath.Join(c.Home, "kubeconfig")}
	c.Up(t)
	c.MustReeve(t, "plugin", "add", plugin, "--approve", "--without", "kubernetes-worker:privileged")
	c.MustReeve(t, "node", "role", "add", "self", pki)
	ports := freePorts(t, 3)
	says := append([]string{fmt.Sprintf(`"port": %d, "controllerManagerPort": %d, "schedulerPort": %d`, ports[0], ports[1], ports[2])}, more...)
	p.addController(t, "{"+strings.Join(says, ", ")+"}")
	return p
}

// addController gives the node the control plane, and waits until it is well.
func (p *plane) addController(t *testing.T, configuration string) {
	t.Helper()
	file := filepath.Join(p.Home, "controller.json")
	if err := os.WriteFile(file, []byte(configuration), 0o644); err != nil {
		t.Fatal(err)
	}
	p.MustReeve(t, "node", "role", "add", "self", controller, "--config", file, "--wait=none")
	p.AwaitUp(t, soon, pki, controller)
	p.MustReeve(t, "kubernetes", "kubeconfig", "--file", p.kubeconfig)
}

// nextPort counts through ports that the kernel gives to nobody who asks for any. No two tests of this package get the same one.
var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(10000)) }

// freePorts are ports that nobody listens on at present. They are below those that the kernel gives to whoever asks for any, and below those that Kubernetes gives to services.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	const lowest, count = 20000, 10000
	var ports []int
	for range count {
		port := lowest + int(nextPort.Add(1)%count)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("%d ports from %d to %d are not free", n, lowest, lowest+count-1)
	return nil
}

// kubectl runs kubectl, which is the plugin's executable.
func (p *plane) kubectl(t *testing.T, arguments ...string) devcluster.Result {
	t.Helper()
	return p.Run(t, p.plugin, append([]string{"kubectl", "--kubeconfig", p.kubeconfig, "--cache-dir", filepath.Join(p.Home, "cache"), "--request-timeout=30s"}, arguments...)...)
}

func (p *plane) mustKubectl(t *testing.T, arguments ...string) devcluster.Result {
	t.Helper()
	result := p.kubectl(t, arguments...)
	if result.Code != 0 {
		t.Fatal(result)
	}
	return result
}

// programs are the processes of the control plane by their names.
func (p *plane) programs(t *testing.T) map[string]procfs.Process {
	t.Helper()
	found := make(map[string]procfs.Process)
	for _, process := range p.Processes(t) {
		if len(process.Arguments) > 0 && slices.Contains(components, process.Arguments[0]) {
			found[process.Arguments[0]] = process
		}
	}
	return found
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	newPlane(t, shared.Cluster(t)).lives(t)
}

// lives is the life of a control plane: it works, is confined, and outlives what happens to it.
func (p *plane) lives(t *testing.T) {
	if nodes := p.mustKubectl(t, "get", "nodes"); !strings.Contains(nodes.Stdout+nodes.Stderr, "No resources found") {
		t.Errorf("there are nodes: %s", nodes)
	}
	p.keep(t, "first")
	p.confined(t)
	p.componentsAre(t, "running", components...)
	t.Run("store", p.storeConfined)
	p.operators(t)
	p.people(t)
	p.hasCoreDNS(t)
	t.Log("how many pods of CoreDNS there are, and its configuration, are the operators'; its image and its service are the plugin's")
	p.mustKubectl(t, "-n", "kube-system", "scale", "deployment", "coredns", "--replicas=3")
	p.mustKubectl(t, "-n", "kube-system", "set", "image", "deployment/coredns", "coredns=example.org/coredns:0")
	p.mustKubectl(t, "-n", "kube-system", "delete", "service", "kube-dns")
	p.mustKubectl(t, "-n", "kube-system", "patch", "configmap", "coredns", "--type=merge", "--patch", `{"data": {"Corefile": "mine"}}`)

	instance, programs := p.Status(t).Role(controller).InstanceID, p.programs(t)
	t.Log("a program that dies is started again, and nothing else is")
	p.KillProcess(t, programs["kube-scheduler"])
	p.componentsAre(t, "running, started 2 times; before that it ended with signal: killed", "kube-scheduler")
	p.componentsAre(t, "running", "kube-apiserver", "kube-controller-manager")
	if now := p.programs(t); now["kube-apiserver"].PID != programs["kube-apiserver"].PID || now["kube-controller-manager"].PID != programs["kube-controller-manager"].PID {
		t.Errorf("programs that did not die are others now: %v, and were %v", now, programs)
	}
	programs = p.programs(t)
	for _, name := range components {
		p.KillProcess(t, programs[name])
	}
	eventually.True(t, soon, "the programs are started again", func() (bool, string) {
		again := p.programs(t)
		for _, name := range components {
			if again[name].PID == 0 || again[name].PID == programs[name].PID {
				return false, fmt.Sprint(again)
			}
		}
		return true, ""
	})
	p.AwaitUp(t, soon, controller)
	p.has(t, "first")
	if now := p.Status(t).Role(controller).InstanceID; now != instance {
		t.Errorf("it is another instance: %s in place of %s", now, instance)
	}

	t.Log("it goes on when the store was restarted")
	server := p.programs(t)["kube-apiserver"].PID
	p.MustReeve(t, "node", "role", "restart", "self", "consensus")
	eventually.True(t, soon, "an object is kept after the restart of the store", func() (bool, string) {
		result := p.kubectl(t, "create", "configmap", "second", "--from-literal=is=kept")
		return result.Code == 0 || strings.Contains(result.Stderr, "already exists"), result.String()
	})
	p.AwaitUp(t, soon, controller)
	p.has(t, "first", "second")
	if now := p.programs(t)["kube-apiserver"].PID; now != server {
		t.Error("the API server was started again")
	}

	t.Log("a role that is killed takes its programs with it, and comes back")
	before := p.programs(t)
	p.Kill(t, p.Status(t).Role(controller).PID)
	eventually.True(t, soon, "other programs", func() (bool, string) {
		now := p.programs(t)
		return len(now) == len(components) && now["kube-apiserver"].PID != before["kube-apiserver"].PID, fmt.Sprint(now)
	})
	p.AwaitUp(t, soon, controller)
	p.has(t, "first", "second")

	p.hasCoreDNS(t)
	if own := p.mustKubectl(t, "-n", "kube-system", "get", "configmap,deployment", "coredns", "-o", "jsonpath={.items[*].data.Corefile} {.items[*].spec.replicas}"); own.Stdout != "mine 3" {
		t.Errorf("what the operators changed of CoreDNS was changed back: %s", own)
	}

	t.Log("what is disabled is gone, and enabled again it is as before")
	p.MustReeve(t, "node", "role", "remove", "self", controller)
	if left := p.programs(t); len(left) > 0 {
		t.Errorf("programs are left: %v", left)
	}
	text, err := os.ReadFile(filepath.Join(p.Home, "controller.json"))
	if err != nil {
		t.Fatal(err)
	}
	p.addController(t, string(text))
	p.has(t, "first", "second")
}

// hasCoreDNS: CoreDNS is there as this plugin has it.
func (p *plane) hasCoreDNS(t *testing.T) {
	t.Helper()
	for what, want := range map[string]string{
		"service/kube-dns {.spec.clusterIP} {.spec.ports[*].port} {.metadata.managedFields[*].manager}": "10.96.0.10 53 53 reeve",
		"deployment/coredns {.spec.template.spec.containers[0].image}":                                  "reeve.internal/coredns:",
		"serviceaccount/coredns {.metadata.name}":                                                       "coredns",
		"configmap/coredns {.metadata.name}":                                                            "coredns",
	} {
		object, fields, _ := strings.Cut(what, " ")
		eventually.True(t, soon, object+" is as it should be", func() (bool, string) {
			got := p.kubectl(t, "-n", "kube-system", "get", object, "-o", "jsonpath="+fields)
			return strings.HasPrefix(got.Stdout, want), got.String()
		})
	}
	for _, test := range []struct{ verb, what, answer string }{{"watch", "endpointslices.discovery.k8s.io", "yes"}, {"list", "services", "yes"}, {"get", "secrets", "no"}} {
		eventually.True(t, soon, fmt.Sprintf("whether CoreDNS may %s %s: %s", test.verb, test.what, test.answer), func() (bool, string) {
			said := p.kubectl(t, "auth", "can-i", test.verb, test.what, "--as", "system:serviceaccount:kube-system:coredns")
			return strings.TrimSpace(said.Stdout) == test.answer, said.String()
		})
	}
}

// componentsAre waits until the role's status says the same of each of these programs.
func (p *plane) componentsAre(t *testing.T, want string, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually.True(t, soon, name+" is "+want, func() (bool, string) {
			role := p.Status(t).Role(controller)
			return role.Values[name] == want, fmt.Sprint(role.Values)
		})
	}
}

// people: an operator and a viewer use kubectl with their own certificates, and not after they were revoked.
func (p *plane) people(t *testing.T) {
	t.Helper()
	as := func(name string, arguments ...string) devcluster.Result {
		return p.Run(t, p.plugin, append([]string{"kubectl", "--kubeconfig", filepath.Join(p.Home, name+".kubeconfig"), "--cache-dir", filepath.Join(p.Home, "cache-"+name), "--request-timeout=30s"}, arguments...)...)
	}
	must := func(arguments ...string) string {
		result := p.Run(t, p.Programs.Reeve(), arguments...)
		if result.Code != 0 {
			t.Fatal(result)
		}
		return result.Stdout
	}
	for _, name := range []string{"operator", "viewer"} {
		key := filepath.Join(p.Home, name+".key")
		public := strings.TrimSpace(must("operator", "key", key))
		must("operator", "add", name, "--role", name, "--public-key", public, "--dir", p.Directory)
		must("login", "--name", name, "--key", key, "--dir", p.Directory)
		must("kubernetes", "kubeconfig", "--file", filepath.Join(p.Home, name+".kubeconfig"), "--context", name)
		if who := as(name, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups[0]}"); who.Stdout != "reeve:operator:"+name+" reeve:"+name {
			t.Errorf("%s is known as %s", name, who)
		}
		if made := as(name, "create", "configmap", "of-"+name, "--from-literal=is=kept"); (made.Code == 0) != (name == "operator") {
			t.Errorf("what %s creates: %s", name, made)
		}
		if read := as(name, "get", "configmap", "first", "-o", "jsonpath={.data.is}"); read.Stdout != "kept" {
			t.Errorf("what %s reads: %s", name, read)
		}
		must("operator", "revoke", name, "--dir", p.Directory)
		eventually.True(t, soon, name+", who was revoked, gets no certificate", func() (bool, string) {
			result := as(name, "get", "configmap", "first")
			return result.Code != 0, result.String()
		})
	}
}

// keep makes an object, and looks for it.
func (p *plane) keep(t *testing.T, name string) {
	t.Helper()
	p.mustKubectl(t, "create", "configmap", name, "--from-literal=is=kept")
	p.has(t, name)
}

func (p *plane) has(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		// What was Ready a moment ago may not have noticed yet that it is not.
		eventually.True(t, soon, "the object "+name+" is there", func() (bool, string) {
			got := p.kubectl(t, "get", "configmap", name, "-o", "jsonpath={.data.is}")
			return got.Stdout == "kept", got.String()
		})
	}
}

// confined: the programs have no power that the role has not. What each process is, the kernel says.
func (p *plane) confined(t *testing.T) {
	t.Helper()
	programs, role := p.programs(t), p.Status(t).Role(controller)
	if len(programs) != len(components) {
		t.Fatalf("the programs are %v", programs)
	}
	for name, process := range programs {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.PID), "status"))
		if err != nil {
			t.Fatal(err)
		}
		of := make(map[string]string)
		for line := range strings.Lines(string(status)) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			of[field] = strings.TrimSpace(value)
		}
		if of["NoNewPrivs"] != "1" || of["Seccomp"] != "2" || of["CapPrm"] != "0000000000000000" || of["PPid"] != strconv.Itoa(role.PID) || strings.HasPrefix(of["Uid"], "0\t") {
			t.Errorf("%s is %v", name, of)
		}
		if strings.Contains(strings.Join(process.Arguments, " "), "PRIVATE KEY") {
			t.Errorf("%s has a key in its arguments", name)
		}
	}
}

// operators: who does what in the cluster does it in Kubernetes too, and no more.
func (p *plane) operators(t *testing.T) {
	t.Helper()
	if who := p.mustKubectl(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"); !strings.Contains(who.Stdout, `reeve:owner ["reeve:owner"`) {
		t.Errorf("the owner is %s", who)
	}
	for _, test := range []struct {
		group, verb, what string
		may               bool
	}{
		{"reeve:owner", "create", "clusterroles", true},
		{"reeve:operator", "create", "deployments.apps", true},
		{"reeve:operator", "create", "namespaces", true},
		{"reeve:operator", "patch", "nodes", true},
		{"reeve:operator", "create", "clusterrolebindings", false},
		{"reeve:viewer", "list", "pods", true},
		{"reeve:viewer", "list", "nodes", true},
		{"reeve:viewer", "get", "secrets", false},
		{"reeve:viewer", "create", "configmaps", false},
		{"system:authenticated", "list", "pods", false},
	} {
		// What the roles admin and view allow, kube-controller-manager puts together when it has begun.
		eventually.True(t, soon, fmt.Sprintf("%s may %s %s: %t", test.group, test.verb, test.what, test.may), func() (bool, string) {
			answer := p.kubectl(t, "auth", "can-i", test.verb, test.what, "--as", "somebody", "--as-group", test.group)
			said := strings.TrimSpace(answer.Stdout)
			return test.may && said == "yes" || !test.may && said == "no", answer.String()
		})
	}
	// The certificate is the operator's, for a quarter of an hour, and there is no secret in the configuration.
	credential := p.MustReeve(t, "kubernetes", "credential")
	var answer struct {
		Status struct {
			Expires time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(credential.Stdout), &answer); err != nil || time.Until(answer.Status.Expires) > 15*time.Minute || time.Until(answer.Status.Expires) < 0 {
		t.Errorf("%v: the certificate ends at %s", err, answer.Status.Expires)
	}
	if text, err := os.ReadFile(p.kubeconfig); err != nil || strings.Contains(string(text), "client-key") {
		t.Errorf("the configuration holds a key, or cannot be read: %v", err)
	}
}

// TestConforms runs the conformance suite on the plugin, as anybody can.
func TestConforms(t *testing.T) {
	t.Parallel()
	plugin, err := shared.Programs.Kubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// It takes two minutes on a quiet machine, for three roles.
	command := exec.CommandContext(t.Context(), shared.Programs.Reeve(), "plugin", "test", "--quiet", "-o", "json", plugin)
	output, err := command.Output()
	var report struct {
		Results  []struct{ Check, Reason string }
		Blocked  []struct{ Role, Reason string }
		Verdicts []struct{ Profile, Verdict string }
	}
	if problem := json.Unmarshal(output, &report); err != nil || problem != nil {
		t.Fatalf("%v, %v\n%s", err, problem, output)
	}
	// The suite has no containerd: without it the worker says what is missing, and nothing else of it can be judged.
	if len(report.Blocked) != 1 || report.Blocked[0].Role != worker || !strings.Contains(report.Blocked[0].Reason, "containerd") {
		t.Errorf("the roles that are Blocked are %+v", report.Blocked)
	}
	if !strings.Contains(fmt.Sprint(report.Verdicts), "{privileged conforms}") {
		t.Errorf("the verdicts are %v", report.Verdicts)
	}
	want := "{powers.granted kubernetes-pki wants listen port=any, watch-operators; kubernetes-worker wants privileged, watch-operators}"
	if !strings.Contains(fmt.Sprint(report.Results), want) {
		t.Errorf("the powers that are listed are not: %s", want)
	}
}
