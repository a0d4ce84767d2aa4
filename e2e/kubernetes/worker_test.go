package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

const (
	worker = "kubernetes-worker"
	// hello is the image of a program to try a cluster with.
	hello = "reeve.internal/hello:1"
)

// workers are the numbers of the nodes that run pods.
var workers = []int{1, 2}

// fleet is a cluster of two nodes, each in a network namespace of its own: both run pods, and the first one the control plane.
type fleet struct {
	*plane
	ids  map[int]string
	work string
	// clean is what the machine was like before it ran pods.
	clean map[int]traces
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	devcluster.RequireNamespaces(t)
	plugin, err := shared.Programs.Kubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parts, err := shared.Programs.KubernetesParts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := shared.Cluster(t)
	f := &fleet{plane: &plane{Cluster: c, plugin: plugin, kubeconfig: filepath.Join(c.Home, "kubeconfig")}, ids: make(map[int]string), clean: make(map[int]traces)}
	c.MustReeve(t, "dev", "up", "--nodes", "2", "--netns", "--detach")
	for number, node := range c.Nodes(t) {
		f.ids[number] = node.Status.Node.ID
		f.clean[number] = f.traces(t, number)
	}
	for _, number := range workers {
		c.MustReeve(t, "plugin", "add", plugin, "--approve", "--privileged", "--node", f.ids[number])
	}
	c.MustReeve(t, "node", "role", "add", f.ids[1], pki)
	c.MustReeve(t, "node", "role", "add", f.ids[1], controller, "--timeout", soon.String())
	c.MustReeve(t, "kubernetes", "kubeconfig", "--file", f.kubeconfig)
	f.work = filepath.Join(c.Home, "worker.json")
	f.writeConfiguration(t, parts)
	for _, number := range workers {
		f.enable(t, number)
	}
	image, err := shared.Programs.KubernetesHello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "kubernetes", "image", "load", image)
	c.MustReeve(t, "kubernetes", "check")
	for _, number := range workers {
		// kubelet removes images when the disk is full, and no registry has this one.
		command := exec.CommandContext(t.Context(), filepath.Join(parts, "ctr"), "--address", "/run/reeve-kubernetes/"+f.ids[number]+"/containerd.sock", "--namespace", "k8s.io", "images", "list", "name=="+hello)
		if listed, err := command.Output(); err != nil || !strings.Contains(string(listed), "io.cri-containerd.pinned=pinned") {
			t.Errorf("node %d: %v: the image is not kept: %s", number, err, listed)
		}
	}
	return f
}

// writeConfiguration writes that of the workers, which find the programs beside the plugin in a directory.
func (f *fleet) writeConfiguration(t *testing.T, parts string) {
	t.Helper()
	// The machine's disk may be as full as it likes.
	document, err := json.Marshal(map[string]any{
		"partsDirectories": []string{parts, "/usr/sbin", "/usr/bin"}, "labels": map[string]string{"example.com/kind": "test"}, "taints": []string{"example.com/try=yes:PreferNoSchedule"},
		"kubeletArguments": []string{"--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%,nodefs.inodesFree<1%"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.work, document, 0o644); err != nil {
		t.Fatal(err)
	}
}

// enable has a node run pods.
func (f *fleet) enable(t *testing.T, number int) {
	t.Helper()
	f.MustReeve(t, "node", "role", "add", f.ids[number], worker, "--config", f.work, "--timeout", soon.String())
}

// apply gives Kubernetes objects.
func (f *fleet) apply(t *testing.T, objects ...any) {
	t.Helper()
	for n, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(f.Home, fmt.Sprintf("object-%d.json", n))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		f.mustKubectl(t, "apply", "-f", file)
	}
}

// pods are the pods of an application, by their nodes.
func (f *fleet) pods(t *testing.T, app string) (list []livePod, said string) {
	t.Helper()
	result := f.kubectl(t, "get", "pods", "-l", "app="+app, "-o", "json")
	var found struct {
		Items []livePod `json:"items"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &found); err != nil {
		return nil, result.String()
	}
	slices.SortFunc(found.Items, func(a, b livePod) int { return strings.Compare(a.Spec.Node, b.Spec.Node) })
	return found.Items, result.Stdout
}

// awaitPods waits until an application has so many pods that are ready, and no others.
func (f *fleet) awaitPods(t *testing.T, app string, n int) []livePod {
	t.Helper()
	var found []livePod
	if seen, ok := eventually.Try(t.Context(), soon, 250*time.Millisecond, func() (bool, string) {
		pods, said := f.pods(t, app)
		found = pods
		return len(pods) == n && !slices.ContainsFunc(pods, func(p livePod) bool { return !p.ready() }), said
	}); !ok {
		t.Log(f.kubectl(t, "get", "nodes,pods", "-A", "-o", "wide"))
		t.Log(f.kubectl(t, "describe", "pods", "-l", "app="+app))
		t.Fatalf("there are not %d pods of %s that are ready: %s", n, app, seen)
	}
	return found
}

// exec runs the program hello in a pod, as often as it takes to succeed.
func (f *fleet) exec(t *testing.T, pod livePod, arguments ...string) string {
	t.Helper()
	var last devcluster.Result
	if seen, ok := eventually.Try(t.Context(), soon, time.Second, func() (bool, string) {
		last = f.kubectl(t, append([]string{"exec", pod.Metadata.Name, "--", "/hello"}, arguments...)...)
		return last.Code == 0, last.String()
	}); !ok {
		t.Fatalf("%q fails in %s: %s", arguments, pod.Metadata.Name, seen)
	}
	return last.Stdout
}

func (f *fleet) nodesAre(t *testing.T, want ...int) {
	t.Helper()
	var names []string
	for _, number := range want {
		names = append(names, f.ids[number]+"=True")
	}
	slices.Sort(names)
	eventually.True(t, soon, fmt.Sprintf("the nodes are %v", names), func() (bool, string) {
		got := f.kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		now := strings.Fields(got.Stdout)
		slices.Sort(now)
		return slices.Equal(now, names), got.String()
	})
}

// runPods has two nodes run a pod each.
func (f *fleet) runPods(t *testing.T) []livePod {
	t.Helper()
	f.nodesAre(t, workers...)
	for _, number := range workers {
		got := f.mustKubectl(t, "get", "node", f.ids[number], "-o", `jsonpath={.metadata.labels.example\.com/kind} {.spec.taints[?(@.key=="example.com/try")].effect}`)
		if got.Stdout != "test PreferNoSchedule" {
			t.Errorf("node %d has not the label and the taint of its configuration: %s", number, got)
		}
	}
	f.mustKubectl(t, "create", "configmap", "said", "--from-literal=word=hello")
	f.apply(t, deployment("hello", 2))
	f.mustKubectl(t, "expose", "deployment", "hello", "--port", "80", "--target-port", "8080")
	pods := f.awaitPods(t, "hello", 2)
	if pods[0].Spec.Node == pods[1].Spec.Node {
		t.Fatalf("both pods are on %s", pods[0].Spec.Node)
	}
	return pods
}

// TestWorkers is the life of two nodes that run pods, which outlive every fault.
func TestWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pods := f.runPods(t)
	f.talk(t, pods)
	f.limits(t)
	f.probes(t, pods)
	f.faults(t, pods)
	f.rotates(t, pods)

	t.Log("when the nodes stop, so do their pods, and nothing is left of them")
	f.MustReeve(t, "dev", "down")
	for _, number := range workers {
		now := f.leftAfterDown(t, number)
		if len(now) > 0 {
			t.Errorf("node %d: %q are left", number, now)
		}
	}
}

// TestWorkersGo is about nodes that stop running pods, and control planes that move.
func TestWorkersGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.runPods(t)
	f.goesAndComes(t)
	f.losesAController(t)
	f.isDecommissioned(t)
}

// talk: pods reach each other over nodes, by address, by service and by name; and people reach them.
func (f *fleet) talk(t *testing.T, pods []livePod) {
	t.Helper()
	t.Log("pods talk over nodes")
	for n, pod := range pods {
		other := pods[1-n]
		if said := f.exec(t, pod, "get", "http://"+other.Status.IP+":8080/"); said != "hello from "+other.Metadata.Name+"\n" {
			t.Errorf("%s is told %q", pod.Metadata.Name, said)
		}
	}
	address := f.mustKubectl(t, "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}").Stdout
	for _, url := range []string{"http://" + address + "/", "http://hello/", "http://hello.default.svc.cluster.local/"} {
		for _, pod := range pods {
			if said := f.exec(t, pod, "get", url); !strings.HasPrefix(said, "hello from hello-") {
				t.Errorf("%s is told %q by %s", pod.Metadata.Name, said, url)
			}
		}
	}
	if found := f.exec(t, pods[0], "lookup", "kubernetes.default.svc.cluster.local"); !strings.Contains(found, "10.96.0.1") {
		t.Errorf("the API server's name leads to %q", found)
	}
	if logs := f.mustKubectl(t, "logs", pods[0].Metadata.Name); !strings.Contains(logs.Stdout, "asked by ") {
		t.Errorf("the log is %s", logs)
	}
}

// probes: a pod that says that it is not ready gets no requests until it is again, and a container that is not alive is started again. Volumes hold what was put there.
func (f *fleet) probes(t *testing.T, pods []livePod) {
	t.Helper()
	t.Log("a pod that is not ready is not in the service, and a container that is not alive is started again")
	f.apply(t, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "lifeless", "labels": object{"app": "lifeless"}}, "spec": object{
		"terminationGracePeriodSeconds": 1,
		"containers": []object{{
			"name": "hello", "image": hello, "imagePullPolicy": "Never", "livenessProbe": object{"exec": object{"command": []string{"/hello", "show", "/nothing"}}, "periodSeconds": 1, "failureThreshold": 1},
		}},
	}})
	if word := f.exec(t, pods[0], "show", "/said/word"); word != "hello" {
		t.Errorf("the volume of the configuration says %q", word)
	}
	// inService waits until the service leads to these pods and no others.
	inService := func(want ...livePod) {
		var addresses []string
		for _, pod := range want {
			addresses = append(addresses, pod.Status.IP)
		}
		slices.Sort(addresses)
		eventually.True(t, soon, fmt.Sprintf("the service leads to %v", addresses), func() (bool, string) {
			got := f.kubectl(t, "get", "endpointslices", "-l", "kubernetes.io/service-name=hello", "-o", `jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}`)
			now := strings.Fields(got.Stdout)
			slices.Sort(now)
			return slices.Equal(now, addresses), got.String()
		})
	}
	inService(pods...)
	f.exec(t, pods[0], "make", illFile)
	inService(pods[1])
	f.exec(t, pods[0], "remove", illFile)
	inService(pods...)
	eventually.True(t, soon, "the container is started again", func() (bool, string) {
		got := f.kubectl(t, "get", "pod", "lifeless", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		return got.Stdout != "" && got.Stdout != "0", got.String()
	})
	f.mustKubectl(t, "delete", "pod", "lifeless", "--wait=false")
}

// limits: a pod that takes more memory than it may is ended, and nobody else.
func (f *fleet) limits(t *testing.T) {
	t.Helper()
	t.Log("a pod that takes more memory than it may is ended")
	f.apply(t, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "greedy", "labels": object{"app": "greedy"}}, "spec": object{
		"restartPolicy": "Never", "containers": []object{{
			"name": "hello", "image": hello, "imagePullPolicy": "Never", "args": []string{"hold", "256"}, "resources": object{"limits": object{"memory": "64Mi"}},
		}},
	}})
	eventually.True(t, soon, "the pod was ended for its memory", func() (bool, string) {
		got := f.kubectl(t, "get", "pod", "greedy", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.reason}")
		return got.Stdout == "OOMKilled", got.String()
	})
	f.mustKubectl(t, "delete", "pod", "greedy", "--wait=false")
}

// same: the pods are the same containers as before.
func (f *fleet) same(t *testing.T, before []livePod) {
	t.Helper()
	now := f.awaitPods(t, "hello", len(before))
	for n, pod := range now {
		if old := before[n]; pod.Metadata.Name != old.Metadata.Name || pod.Status.Containers[0].ID != old.Status.Containers[0].ID || pod.Status.Containers[0].Restarts != old.Status.Containers[0].Restarts {
			t.Errorf("the pod %s of %s is another one: %s, restarted %d times", old.Metadata.Name, old.Spec.Node, pod.Metadata.Name, pod.Status.Containers[0].Restarts)
		}
	}
}

// faults: what is killed comes back, and pods do not notice.
func (f *fleet) faults(t *testing.T, pods []livePod) {
	t.Helper()
	t.Log("a worker that is killed comes back, and its pods have not noticed")
	role := f.awaitWorker(t, 2, "")
	f.Kill(t, role.PID)
	f.awaitWorker(t, 2, role.InstanceID)
	f.same(t, pods)
	f.nodesAre(t, workers...)
	f.talk(t, pods)

	t.Log("so do its programs, each by itself")
	role = f.awaitWorker(t, 2, "")
	killed := make(map[string]int)
	for _, name := range []string{"containerd", "kubelet", "kube-proxy"} {
		eventually.True(t, soon, name+" runs", func() (bool, string) {
			killed[name] = f.child(t, role.PID, name)
			return killed[name] != 0, fmt.Sprint(role)
		})
		if err := unix.Kill(killed[name], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, soon, "the programs are started again", func() (bool, string) {
		for name, former := range killed {
			if now := f.child(t, role.PID, name); now == 0 || now == former {
				return false, fmt.Sprint(name, " is ", now)
			}
		}
		now := f.role(t, 2, worker)
		return now.State == "Ready" && now.InstanceID == role.InstanceID, fmt.Sprint(now)
	})
	f.same(t, pods)

	t.Log("a controller that is killed comes back, and the workers find it again")
	former := 0
	eventually.True(t, soon, "the controller runs", func() (bool, string) {
		former = f.role(t, 1, controller).PID
		return former != 0, ""
	})
	f.Kill(t, former)
	eventually.True(t, soon, "an object is made", func() (bool, string) {
		got := f.kubectl(t, "create", "configmap", "after", "--from-literal=it=works")
		return got.Code == 0 || strings.Contains(got.Stderr, "already exists"), got.String()
	})
	f.nodesAre(t, workers...)
	f.same(t, pods)
}

// child is the process of a program of a role; 0: none runs. containerd does not say of which instance it is, as the others do: what outlives the instance has its environment.
func (f *fleet) child(t *testing.T, parent int, name string) int {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		if process.Parent == parent && len(process.Arguments) > 0 && process.Arguments[0] == name && !process.Ended() {
			return process.PID
		}
	}
	return 0
}

// rotates: the authorities of Kubernetes are replaced, and pods do not notice.
func (f *fleet) rotates(t *testing.T, pods []livePod) {
	t.Helper()
	t.Log("the authorities are replaced, and pods have not noticed")
	f.rotate(t, "prepare", "prepared")
	// The one before knows the former authority only.
	f.MustReeve(t, "kubernetes", "kubeconfig", "--file", f.kubeconfig)
	f.rotate(t, "activate", "active")
	// What asks the API server from a pod has a token of the former key for up to an hour, which nobody waits for here.
	f.mustKubectl(t, "rollout", "restart", "deployment", "coredns", "--namespace", "kube-system")
	f.mustKubectl(t, "rollout", "status", "deployment", "coredns", "--namespace", "kube-system", "--timeout", soon.String(), "--request-timeout", soon.String())
	f.rotate(t, "retire", "steady")
	f.MustReeve(t, "kubernetes", "kubeconfig", "--file", f.kubeconfig)
	f.nodesAre(t, workers...)
	f.same(t, pods)
	if said := f.exec(t, pods[0], "get", "http://hello/"); !strings.HasPrefix(said, "hello from hello-") {
		t.Errorf("%s is told %q", pods[0].Metadata.Name, said)
	}
}

// role returns the state of a role on a node, the zero Role if the node does not answer.
func (f *fleet) role(t *testing.T, number int, name string) devcluster.Role {
	t.Helper()
	if status := f.Nodes(t)[number].Status; status != nil {
		return status.Role(name)
	}
	return devcluster.Role{}
}

// awaitWorker waits until a node runs another instance of the role than not, and it is Ready. It returns that instance.
func (f *fleet) awaitWorker(t *testing.T, number int, not string) devcluster.Role {
	t.Helper()
	var now devcluster.Role
	eventually.True(t, soon, fmt.Sprintf("another worker of node %d is Ready", number), func() (bool, string) {
		now = f.role(t, number, worker)
		return now.State == "Ready" && now.PID != 0 && now.InstanceID != not, fmt.Sprint(now)
	})
	return now
}

// goesAndComes: the role is taken from a node, whose pods go to the other one and which is as it was before; and comes back.
func (f *fleet) goesAndComes(t *testing.T) {
	t.Helper()
	t.Log("a node that is no worker any more has no pods, and is as it was before")
	f.MustReeve(t, "node", "role", "remove", f.ids[2], worker, "--timeout", soon.String())
	f.isClean(t, 2)
	f.nodesAre(t, 1)
	for _, pod := range f.awaitPods(t, "hello", 2) {
		if pod.Spec.Node != f.ids[1] {
			t.Errorf("the pod %s is on %s", pod.Metadata.Name, pod.Spec.Node)
		}
	}
	t.Log("and when it is one again, it runs pods again")
	f.enable(t, 2)
	f.nodesAre(t, workers...)
	eventually.True(t, soon, "pods may go to the node", func() (bool, string) {
		taints := f.kubectl(t, "get", "node", f.ids[2], "-o", `jsonpath={.spec.taints[?(@.effect=="NoSchedule")].key}`)
		return taints.Code == 0 && taints.Stdout == "", taints.String()
	})
	f.mustKubectl(t, "scale", "deployment", "hello", "--replicas", "4")
	on := make(map[string]livePod)
	for _, pod := range f.awaitPods(t, "hello", 4) {
		on[pod.Spec.Node] = pod
	}
	if len(on) != 2 {
		t.Fatalf("the pods are on %v", on)
	}
	for _, pod := range on {
		if said := f.exec(t, pod, "get", "http://hello/"); !strings.HasPrefix(said, "hello from hello-") {
			t.Errorf("%s is told %q", pod.Metadata.Name, said)
		}
	}

	t.Log("a Node that somebody deletes comes back")
	uid := f.mustKubectl(t, "get", "node", f.ids[2], "-o", "jsonpath={.metadata.uid}").Stdout
	f.mustKubectl(t, "delete", "node", f.ids[2])
	eventually.True(t, soon, "there is another Node", func() (bool, string) {
		got := f.kubectl(t, "get", "node", f.ids[2], "-o", "jsonpath={.metadata.uid}")
		return got.Code == 0 && got.Stdout != uid, got.String()
	})
	f.nodesAre(t, workers...)
	// It may have other ranges of pods than before.
	eventually.True(t, soon, "its worker has the ranges of the Node", func() (bool, string) {
		ranges := f.kubectl(t, "get", "node", f.ids[2], "-o", "jsonpath={.spec.podCIDR}").Stdout
		now := f.role(t, 2, worker)
		return ranges != "" && now.Values["pod-cidrs"] == ranges && now.State == "Ready", ranges + " " + fmt.Sprint(now)
	})
	for _, pod := range f.awaitPods(t, "hello", 4) {
		if said := f.exec(t, pod, "get", "http://hello/"); !strings.HasPrefix(said, "hello from hello-") {
			t.Errorf("%s is told %q", pod.Metadata.Name, said)
		}
	}
}

// losesAController: of two control planes one is taken away, and the workers of both nodes go on with the other one.
func (f *fleet) losesAController(t *testing.T) {
	t.Helper()
	t.Log("of two control planes one is taken away, and the workers go on with the other one")
	move := func(from, to int) {
		f.MustReeve(t, "node", "role", "add", f.ids[to], controller, "--with-required", "--timeout", soon.String())
		f.MustReeve(t, "node", "role", "remove", f.ids[from], controller)
		eventually.True(t, soon, "the directory names the other API server only", func() (bool, string) {
			written := f.Reeve(t, "kubernetes", "kubeconfig", "--file", f.kubeconfig)
			if written.Code != 0 {
				return false, written.String()
			}
			got := f.kubectl(t, "get", "namespace", "default")
			return got.Code == 0, got.String()
		})
	}
	move(1, 2)
	// New pods are the word of kubelets that have heard of them.
	f.mustKubectl(t, "rollout", "restart", "deployment", "hello")
	f.mustKubectl(t, "rollout", "status", "deployment", "hello", "--timeout", soon.String(), "--request-timeout", soon.String())
	f.nodesAre(t, workers...)
	on := make(map[string]bool)
	for _, pod := range f.awaitPods(t, "hello", 4) {
		on[pod.Spec.Node] = true
		if said := f.exec(t, pod, "get", "http://hello/"); !strings.HasPrefix(said, "hello from hello-") {
			t.Errorf("%s is told %q", pod.Metadata.Name, said)
		}
	}
	if len(on) != len(workers) {
		t.Errorf("the new pods are on %v", on)
	}
	move(2, 1)
	f.MustReeve(t, "node", "role", "remove", f.ids[2], pki)
}

// isDecommissioned: a node is taken out of the cluster for good. Its pods go to the other one, Kubernetes forgets it, and nothing of the worker is left on the machine.
func (f *fleet) isDecommissioned(t *testing.T) {
	t.Helper()
	t.Log("a node that is decommissioned leaves its pods to the other one")
	f.MustReeve(t, "node", "decommission", f.ids[2], "--yes", "--wait", "--timeout", soon.String())
	eventually.True(t, soon, "Kubernetes knows the other node only", func() (bool, string) {
		got := f.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
		return strings.TrimSpace(got.Stdout) == f.ids[1], got.String()
	})
	for _, pod := range f.awaitPods(t, "hello", 4) {
		if pod.Spec.Node != f.ids[1] {
			t.Errorf("the pod %s is on %s", pod.Metadata.Name, pod.Spec.Node)
		}
	}
	f.isClean(t, 2)
}
