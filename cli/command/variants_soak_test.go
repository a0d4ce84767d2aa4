//go:build soak

package command_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// slowScripts are the scripts that only the soak runs, as they wait for long.
func slowScripts() []string { return []string{filepath.Join("testdata", "soak", "dev_held.txtar")} }

// programs returns the directory in which testscript has put reeve and reeved, which are this test program itself.
func programs(t *testing.T, _ string) string {
	t.Helper()
	reeve, err := exec.LookPath("reeve")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(reeve)
}
