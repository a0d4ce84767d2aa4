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
	if err := setup.CheckMark(plan.File, plan.State); err != nil {
		t.Fatal(err)
	}
	mark := plan.File + setup.MarkSuffix
	write := func(content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(mark), 0o755), os.WriteFile(mark, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"version":1,"content":{"node_id":"n1","cluster_id":"c1","places":[{"path":"/srv/r/system","target":"/srv/r","source":"/dev/vdb1","type":"ext4"}]}}`)
	err := setup.CheckMark(plan.File, plan.State)
	message := fault.Message(err)
	if fault.CodeOf(err) != fault.Refused {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"node n1 of cluster c1", "/dev/vdb1, mounted at /srv/r", "--again", plan.State} {
		if !strings.Contains(message, want) {
			t.Errorf("%q lacks %q", message, want)
		}
	}
	write("damaged")
	if err := setup.CheckMark(plan.File, plan.State); fault.CodeOf(err) != fault.Refused {
		t.Errorf("%v", err)
	}
	// A node that is there goes on.
	system := filepath.Join(plan.State, "system")
	if err := errors.Join(os.MkdirAll(system, 0o700), os.WriteFile(filepath.Join(system, "configuration.json"), nil, 0o400)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(setup.CheckMark(plan.File, plan.State), os.RemoveAll(plan.State), setup.ForgetMark(plan.File), setup.CheckMark(plan.File, plan.State)); err != nil {
		t.Error(err)
	}
}
