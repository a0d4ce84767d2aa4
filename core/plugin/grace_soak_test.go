//go:build soak

package plugin_test

import (
	"os"
	"path/filepath"
	"testing"
)

// What a core that is dead has left has the time that its manifest says, too. The role takes seven seconds.
func TestStopGraceOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	slow(t, node, "slow", 120).Leave()
	next, err := openNode(node.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.launcher.StopRecorded(t.Context()); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(filepath.Join(node.dir, "data", "roles", "one", "written")); err != nil || string(content) != "late" {
		t.Errorf("it did not come to its end: %q, %v", content, err)
	}
	node.nothingLeft(t)
}
