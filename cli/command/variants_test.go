//go:build !soak

package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// scripts are the scripts that run: those of testdata/soak wait for long, and are the soak's.
const scripts = "testdata/script/*.txtar"

// programs builds reeve and the programs beside it into a directory of their own and returns it. They are this test program without the race detector: the scripts
// start them hundreds of times, and most of the time of a start is the race detector's. The soak runs them with it.
func programs(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(root, "bin")
	reeve := filepath.Join(dir, "reeve")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-w", "-o", reeve, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, name := range []string{"reeved", "reeve-conformance"} {
		if err := os.Link(reeve, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
