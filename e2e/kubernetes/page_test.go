package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/follow"
	"github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
)

// TestRunKubernetes follows the page "Run Kubernetes", from a clone in which all is built to a machine that is as before.
func TestRunKubernetes(t *testing.T) {
	t.Parallel()
	devcluster.RequireNamespaces(t)
	text := page.Open(t, shared.Programs.Workspace, "docs/how-to/run-kubernetes.md")
	if _, err := shared.Programs.Kubernetes(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts, err := shared.Programs.KubernetesParts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hello, err := shared.Programs.KubernetesHello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := shared.Cluster(t)
	clone := filepath.Join(c.Home, "reeve")
	c.Directory = filepath.Join(clone, "var", "dev")
	// What `make` leaves in a clone. The page makes a link in its bin, which is nobody else's.
	if err := os.MkdirAll(filepath.Join(clone, "bin", "kubernetes"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, built := range map[string]string{
		"reeve": shared.Programs.Reeve(), "reeved": shared.Programs.Reeved(), "plugins": shared.Programs.Plugins(), "kubernetes/hello.tar": hello,
	} {
		if err := os.Symlink(built, filepath.Join(clone, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{plane: &plane{Cluster: c}, ids: make(map[int]string), work: filepath.Join(c.Home, "worker.json"), clean: make(map[int]traces)}
	f.writeConfiguration(t, parts)
	shell := terminal.New(t, clone, "HOME="+c.Home, "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"),
		// What the page exports stays in a terminal; of this one only PATH does.
		"KUBECONFIG="+filepath.Join(clone, "kubeconfig"))
	const add = "reeve node role add self kubernetes-worker"
	reader := follow.Reader{
		Run: func(line string) terminal.Result { return shell.Run(t, line) },
		// The programs beside the plugin are not installed below /usr/local.
		Names: map[string]func() string{add: func() string { return add + " --config " + f.work }},
		Events: map[string]func(){
			"before-anything": func() {
				f.ids[1] = c.Nodes(t)[1].Status.Node.ID
				f.clean[1] = f.traces(t, 1)
			},
			"the-machine-is-as-before": func() { f.isClean(t, 1) },
		},
	}
	reader.Follow(t, text)
	c.NoProcesses(t)
	if left := f.leftAfterDown(t, 1); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
