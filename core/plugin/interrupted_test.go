package plugin_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// What a core left that was killed while it wrote is removed by the next one, and nothing else is.
func TestInterruptedWritesAreRemoved(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	waitState(t, node.launch(t, plugintest.Configuration{Do: "ready"}), rolev1.RoleState_ROLE_STATE_READY)
	before := node.entries(t, "data")
	for _, name := range []string{".counters.json1234567890123456789", ".counters.json0", ".uids.json99"} {
		if err := os.WriteFile(filepath.Join(node.dir, "data", name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{".counters.json", ".counters.json.bak", ".counters.json-1", "counters.json1", ".uids.jsonx"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(node.dir, "data", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openNode(node.dir); err != nil {
		t.Fatal(err)
	}
	want := append(before, others...)
	if node.users.Shared() {
		want = append(want, ".uids.json99") // no file of an ordinary user's
	}
	slices.Sort(want)
	if after := node.entries(t, "data"); !slices.Equal(after, want) {
		t.Errorf("the directory holds %v, want %v", after, want)
	}
}
