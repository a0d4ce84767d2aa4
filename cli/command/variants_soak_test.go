//go:build soak

package command_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// scripts are the scripts that run: all.
const scripts = "testdata/*/*.txtar"

// programs returns the directory in which testscript has put reeve and reeved, which are this test program itself.
func programs(t *testing.T, _ string) string {
	t.Helper()
	reeve, err := exec.LookPath("reeve")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(reeve)
}
