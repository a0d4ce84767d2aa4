package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/proto/passage"
)

// Whatever the umask is, the roles of the node pass through what init makes, and nobody else writes there.
func TestUmaskOfInit(t *testing.T) {
	for _, mask := range []int{0o077, 0o002, 0} {
		root, plan := newPlan(t)
		if err := os.Chmod(root, 0o711); err != nil {
			t.Fatal(err)
		}
		plan.State, plan.Run, plan.File = filepath.Join(root, "a", "b", "state"), filepath.Join(root, "r", "run"), filepath.Join(root, "e", "etc", "node.yaml")
		before := syscall.Umask(mask)
		_, err := setup.Make(plan)
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		shared := os.FileMode(0o700)
		if os.Geteuid() == 0 {
			shared = 0o711
		}
		for path, want := range map[string]os.FileMode{
			"a": 0o755, "a/b": 0o755, "a/b/state": shared, "a/b/state/system": 0o700, "a/b/state/data": shared, "r": 0o755, "r/run": shared, "e": 0o755, "e/etc": 0o755, "e/etc/node.yaml": 0o644,
		} {
			if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%03o: %s: %v, %v, want %v", mask, path, info.Mode(), err, want)
			}
		}
		if closed, err := passage.Closed(filepath.Join(plan.State, "data"), plan.Run); err != nil || len(closed) > 0 {
			t.Errorf("%03o: %v, %v", mask, closed, err)
		}
	}
}

// All that is in the way of the roles is named at once, before anything is made.
func TestCheckPassable(t *testing.T) {
	root, plan := newPlan(t)
	if err := errors.Join(os.Chmod(root, 0o711), os.MkdirAll(filepath.Join(root, "a", "b"), 0o700), os.MkdirAll(filepath.Join(root, "aside", "there"), 0o700),
		os.Symlink("aside/there", filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	plan.State, plan.Run = filepath.Join(root, "a", "b", "later", "state"), filepath.Join(root, "link", "run")
	want := []string{filepath.Join(root, "a"), filepath.Join(root, "a", "b"), filepath.Join(root, "aside"), filepath.Join(root, "aside", "there")}
	err := setup.CheckPassable(plan.State, plan.Run)
	if os.Geteuid() != 0 {
		if err != nil {
			t.Errorf("the roles of an ordinary user are that user: %v", err)
		}
		return
	}
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "chmod o+x "+strings.Join(want, " ")) {
		t.Errorf("%v", err)
	}
}
