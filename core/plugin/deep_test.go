package plugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// What a role leaves in its runtime directory keeps neither its instance from ending cleanly nor the next core from starting.
func TestDeepDirectoriesOfARole(t *testing.T) {
	t.Parallel()
	levels := deepest
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{Do: "ready"})
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	plugintest.Deep(t, filepath.Join(node.dir, "run", "plugin", instance.Remit().Name), 2_000)
	if err := instance.Stop(context(), time.Second); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)

	for _, part := range []string{"plugin", "host", "access", "instances"} {
		leftover := filepath.Join(node.dir, "run", part, "one.99")
		if err := os.MkdirAll(leftover, 0o700); err != nil {
			t.Fatal(err)
		}
		plugintest.Deep(t, leftover, levels)
		levels = 2_000
	}
	next, err := openNode(node.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.launcher.StopRecorded(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)
}

// What cannot be removed at all is reported, and the node starts.
func TestWhatCannotBeRemovedIsLeft(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	stuck := filepath.Join(node.dir, "run", "plugin", "one.99")
	for _, path := range []string{stuck, filepath.Join(node.dir, "run", "plugin", "one.98")} {
		if err := os.MkdirAll(filepath.Join(path, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plugintest.Immutable(t, stuck)
	if err := node.launcher.StopRecorded(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.log.wait(t, func(l logged) bool {
		return strings.Contains(l.message, "cannot be removed entirely") && strings.Contains(l.fields["error"], `"one.99"`)
	})
	if left := node.entries(t, "run", "plugin"); len(left) != 1 || left[0] != "one.99" {
		t.Errorf("left: %v", left)
	}
	waitState(t, node.launch(t, plugintest.Configuration{Do: "ready"}), rolev1.RoleState_ROLE_STATE_READY)
}
