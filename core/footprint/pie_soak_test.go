//go:build soak

package footprint

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What TestGiveBack shows holds for an executable that is independent of its position, parts of which the loader has written to: its process would crash without them. The standard library is
// compiled anew for it.
func TestGiveBackWherePositionsVary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "independent")
	if out, err := exec.Command("go", "test", "-c", "-buildmode=pie", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Skipf("such an executable cannot be built here: %v: %s", err, out)
	}
	if out, err := exec.Command(binary, "-test.run", "^TestGiveBack$", "-test.v").CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestGiveBack") {
		t.Errorf("%v:\n%.2000s", err, out)
	}
}
