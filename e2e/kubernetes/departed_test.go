package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestNodesWithoutAWorker: a node of Kubernetes goes when its node of the cluster is gone or has no worker any more, and no other one does.
func TestNodesWithoutAWorker(t *testing.T) {
	t.Parallel()
	// A Node that never had a kubelet becomes Unknown after 5 s. The test itself sets the condition of the other one.
	p := newPlane(t, shared.Cluster(t), `"controllerManagerArguments": ["--node-monitor-grace-period=1h", "--node-startup-grace-period=5s", "--node-monitor-period=1s"]`)
	own, gone := p.Status(t).Node.ID, "reeve-00000000000000000000000000000001"
	for _, node := range []struct{ name, label, conditions string }{
		{own, own, ""},                 // it is in the cluster and has no worker
		{gone, gone, ""},               // it is not in the cluster
		{"of-somebody", "", ""},        // a worker has not registered it
		{"with-other-label", gone, ""}, // nor this one
		// There is no worker by this name either, but its kubelet lives.
		{"of-another-worker", "of-another-worker", `{type: Ready, status: "True", reason: Test}`},
	} {
		labels := ""
		if node.label != "" {
			labels = "labels: {reeve.dev/node: " + node.label + "}"
		}
		file := filepath.Join(p.Home, node.name+".yaml")
		text := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, %s}\nspec: {unschedulable: true}\nstatus: {conditions: [%s]}\n", node.name, labels, node.conditions)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		p.mustKubectl(t, "create", "-f", file)
	}
	const left = "of-another-worker of-somebody with-other-label"
	eventually.True(t, soon, "two nodes of Kubernetes are left out", func() (bool, string) {
		got := p.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
		return strings.TrimSpace(got.Stdout) == left, got.String()
	})
	t.Log("when that kubelet falls silent its node goes too")
	p.mustKubectl(t, "patch", "node", "of-another-worker", "--subresource=status", "--type=merge", "--patch", `{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Test"}]}}`)
	eventually.True(t, soon, "another node of Kubernetes goes", func() (bool, string) {
		got := p.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
		return strings.TrimSpace(got.Stdout) == "of-somebody with-other-label", got.String()
	})
}
