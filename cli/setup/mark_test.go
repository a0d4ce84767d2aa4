package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
)

func TestMachineThatWasANode(t *testing.T) {
	_, plan := newPlan(t)
	system := filepath.Join(plan.State, "system")
	if err := setup.CheckMark(plan.File, system); err != nil {
		t.Fatal(err)
	}
	mark := plan.File + setup.MarkSuffix
	write := func(content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(mark), 0o755), os.WriteFile(mark, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(parts ...string) {
		t.Helper()
		err := setup.CheckMark(plan.File, system)
		if fault.CodeOf(err) != fault.Refused {
			t.Fatalf("%v", err)
		}
		for _, want := range parts {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	}
	on := func(target string) {
		write(`{"version":1,"content":{"node_id":"n1","cluster_id":"c1","places":[{"path":"` + filepath.Join(plan.State, "data") + `","target":"` + target + `","source":"/dev/vdb1","type":"ext4"}]}}`)
	}
	on(plan.State)
	refused("nothing is mounted at "+plan.State, "/dev/vdb1", "node n1 of cluster c1", "--again")
	// Something is mounted.
	on("/proc")
	refused("node n1 of cluster c1", "--again", system)
	write("damaged")
	refused("--again")
	on("/proc")
	// A node that is there goes on.
	if err := errors.Join(os.MkdirAll(system, 0o700), os.WriteFile(filepath.Join(system, "configuration.json"), nil, 0o400)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(setup.CheckMark(plan.File, system), os.RemoveAll(plan.State), setup.ForgetMark(plan.File), setup.CheckMark(plan.File, system)); err != nil {
		t.Error(err)
	}
}
