//go:build soak

package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// planeOf is the control plane of the node with a number, as kubectl reaches it. Its commands ask that node.
type planeOf struct {
	*plane
	number int
	id     string
}

// awaitNode waits until a node is up with these roles.
func awaitNode(t *testing.T, c *devcluster.Cluster, number int, roles ...string) devcluster.Status {
	t.Helper()
	var status devcluster.Status
	eventually.True(t, soon, fmt.Sprintf("node %d is up with %v", number, roles), func() (bool, string) {
		node := c.Nodes(t)[number]
		if node.Status == nil {
			return false, "it does not run"
		}
		status = *node.Status
		return status.Up(roles...), status.String()
	})
	return status
}

// add gives a node both roles of a control plane.
func (p *planeOf) add(t *testing.T, configuration string) {
	t.Helper()
	p.MustReeve(t, "node", "role", "add", p.id, pki)
	p.MustReeve(t, "node", "role", "add", p.id, controller, "--config", configuration, "--wait=none")
}

// reach waits until the control plane is well, and writes the configuration by which kubectl reaches it.
func (p *planeOf) reach(t *testing.T) {
	t.Helper()
	var address string
	eventually.True(t, soon, fmt.Sprintf("the API server of node %d", p.number), func() (bool, string) {
		status := awaitNode(t, p.Cluster, p.number, pki, controller)
		address = status.Role(controller).Endpoint("kubernetes-api")
		return address != "", status.String()
	})
	p.kubeconfig = filepath.Join(p.Home, fmt.Sprintf("kubeconfig-%d", p.number))
	result := p.StartAlone(t, "kubernetes", "kubeconfig", "--dir", p.NodeDirectory(p.number), "--file", p.kubeconfig, "--server", address).Wait(t, time.Minute)
	if result.Code != 0 {
		t.Fatal(result)
	}
}

// managed: kube-controller-manager works, one of them, at this API server. It makes a service account in every namespace.
func (p *planeOf) managed(t *testing.T, namespace string) {
	t.Helper()
	eventually.True(t, soon, "a namespace is made", func() (bool, string) {
		result := p.kubectl(t, "create", "namespace", namespace)
		return result.Code == 0 || strings.Contains(result.Stderr, "already exists"), result.String()
	})
	eventually.True(t, soon, "kube-controller-manager makes what is to be in a namespace", func() (bool, string) {
		result := p.kubectl(t, "-n", namespace, "get", "serviceaccount", "default")
		return result.Code == 0, result.String()
	})
}

// leader is who leads among the programs of a name.
func (p *planeOf) leader(t *testing.T, name string) string {
	t.Helper()
	var leader string
	eventually.True(t, soon, "one leads among "+name, func() (bool, string) {
		result := p.kubectl(t, "-n", "kube-system", "get", "lease", name, "-o", "jsonpath={.spec.holderIdentity}")
		leader = strings.TrimSpace(result.Stdout)
		return leader != "", result.String()
	})
	return leader
}

// processes are those of the node, with a core that is there first.
func (p *planeOf) processes(t *testing.T) (found []procfs.Process) {
	t.Helper()
	parameters := filepath.Join(p.NodeDirectory(p.number), "reeved.yaml")
	for _, process := range p.Processes(t) {
		switch {
		case slices.Contains(process.Arguments, parameters):
			found = slices.Insert(found, 0, process)
		case strings.HasPrefix(process.Variable(devcluster.Instance), p.id+"/"):
			found = append(found, process)
		}
	}
	return found
}

// powerOff kills everything on the node.
func (p *planeOf) powerOff(t *testing.T) {
	t.Helper()
	for all := p.processes(t); len(all) > 0; all = p.processes(t) {
		for _, process := range all {
			p.KillProcess(t, process)
		}
	}
}

// leaderLost kills the node of the store's leader while objects are made through the API server of another one, and has it come back.
func leaderLost(t *testing.T, first, second *planeOf) {
	t.Helper()
	const writing, each = 8, 100
	var lost, by *planeOf
	var w *writers
	for {
		lost, by = &planeOf{plane: first.plane, number: leader(t, first.Cluster)}, first
		lost.id = awaitNode(t, first.Cluster, lost.number).Node.ID
		if lost.number == first.number {
			by = second
		}
		w = by.write(t, writing)
		w.await(t, each)
		if leader(t, first.Cluster) == lost.number {
			break
		}
		// Under the load another one has been elected.
		w.end()
		eventually.True(t, soon, "the objects are deleted", func() (bool, string) {
			result := by.kubectl(t, "delete", "configmaps", "-l", "by=writers", "--ignore-not-found")
			return result.Code == 0, result.String()
		})
	}
	lost.powerOff(t)
	w.await(t, each)
	w.end()
	if now := awaitNode(t, by.Cluster, by.number, "consensus"); now.Store == nil || now.Store.LeaderID == "" {
		t.Errorf("no member leads: %s", now)
	}
	var listed devcluster.Result
	eventually.True(t, soon, "the objects are listed", func() (bool, string) {
		listed = by.kubectl(t, "get", "configmaps", "-l", "by=writers", "-o", `jsonpath={range .items[*]}{.metadata.name}={.data.is}{"\n"}{end}`)
		return listed.Code == 0, listed.String()
	})
	there := make(map[string]bool)
	for line := range strings.Lines(listed.Stdout) {
		there[strings.TrimSpace(line)] = true
	}
	missing := 0
	for _, name := range w.acknowledged {
		if !there[name+"="+name] {
			missing++
		}
	}
	t.Logf("node %d is lost: %d objects were acknowledged, %d attempts failed", lost.number, len(w.acknowledged), w.failed)
	if missing > 0 {
		t.Errorf("%d of %d objects that were acknowledged are lost", missing, len(w.acknowledged))
	}
	by.MustReeve(t, "dev", "up", "--detach")
	first.reach(t)
	second.reach(t)
}

// TestSeveralControlPlanes: of two, each serves without the other, whether that dies or is taken away, and what only one may do at a time the other one takes over.
func TestSeveralControlPlanes(t *testing.T) {
	t.Parallel()
	c := shared.Cluster(t)
	c.MustReeve(t, "dev", "up", "--nodes", "3", "--detach")
	plugin, err := shared.Programs.Kubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	configuration := filepath.Join(c.Home, "controller.json")
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `{"port": %d, "controllerManagerPort": %d, "schedulerPort": %d}`, ports[0], ports[1], ports[2]), 0o644); err != nil {
		t.Fatal(err)
	}
	var planes [2]*planeOf
	for n := range planes {
		id := awaitNode(t, c, n+1, devcluster.DefaultRoles...).Node.ID
		planes[n] = &planeOf{plane: &plane{Cluster: c, plugin: plugin}, number: n + 1, id: id}
		c.MustReeve(t, "plugin", "add", plugin, "--approve", "--without", "kubernetes-worker:privileged", "--node", id)
		planes[n].add(t, configuration)
	}
	first, second := planes[0], planes[1]
	first.reach(t)
	second.reach(t)

	t.Log("both are the same Kubernetes")
	first.keep(t, "first")
	second.has(t, "first")
	second.managed(t, "one")

	t.Log("both are told of new authorities, and both work on")
	first.rotate(t, "prepare", "prepared")
	first.reach(t)
	second.reach(t)
	first.has(t, "first")
	second.keep(t, "second")

	t.Log("the machine loses its power whose member leads the store, under load: no object that was acknowledged is lost")
	leaderLost(t, first, second)

	t.Log("the machine of one loses its power: the other one serves, and its programs lead")
	first.powerOff(t)
	second.has(t, "first", "second")
	second.managed(t, "two")
	eventually.True(t, soon, "an object is kept", func() (bool, string) {
		result := second.kubectl(t, "create", "configmap", "third", "--from-literal=is=kept")
		return result.Code == 0 || strings.Contains(result.Stderr, "already exists"), result.String()
	})
	leaders := map[string]string{"kube-controller-manager": "", "kube-scheduler": ""}
	for name := range leaders {
		leaders[name] = second.leader(t, name)
	}

	t.Log("it comes back, and the other one is taken away: again it serves, and its programs lead")
	c.MustReeve(t, "dev", "up", "--detach")
	first.reach(t)
	first.has(t, "first", "second", "third")
	c.MustReeve(t, "node", "role", "remove", second.id, controller)
	first.managed(t, "three")
	for name, former := range leaders {
		eventually.True(t, soon, "another "+name+" leads", func() (bool, string) {
			now := first.leader(t, name)
			return now != former, now
		})
	}
	first.has(t, "third")
	if left := slices.DeleteFunc(second.processes(t), func(p procfs.Process) bool {
		return len(p.Arguments) == 0 || !slices.Contains(components, p.Arguments[0])
	}); len(left) > 0 {
		t.Errorf("programs are left on the node whose control plane was taken away: %v", left)
	}
}
