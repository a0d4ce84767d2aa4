package roles_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A new version of a real plugin that does not start, then one that crashes soon, then one that works.
func TestRealUpgrade(t *testing.T) {
	t.Parallel()
	n := newRealNode(t, func(c *roles.Config) { c.Probation = time.Hour })
	first := n.add(t, pair)
	first.Version = "1.0.0"
	n.desire(first, 1, plugintest.Configuration{Do: "ready", Write: "kept"}, "store")
	before := n.wait(t, "store", in(ready))

	desire := func(record, previous *clusterv1.PluginRecord) {
		assignment := &clusterv1.RoleAssignment{Role: "store", Configuration: plugintest.Configuration{Do: "ready", Write: "kept"}.String(), Generation: 1}
		n.desired.Set(roles.Desired{Roles: []roles.DesiredRole{{
			Assignment: assignment, Plugin: record, Previous: &roles.DesiredRole{Assignment: assignment, Plugin: previous},
		}}})
	}
	broken := pair
	broken.Before = "exit"
	second := n.add(t, broken)
	second.Version = "2.0.0"
	desire(second, first)
	back := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetRolledBack() != nil && s.GetState() == ready })
	if back.GetPluginVersion() != "1.0.0" || back.GetDigest() != first.GetDigests()[store.Platform] || back.GetRolledBack().GetVersion() != "2.0.0" ||
		!strings.Contains(back.GetRolledBack().GetReason(), "cannot find my own feet") || back.GetInstanceId() == before.GetInstanceId() {
		t.Errorf("status %v", back)
	}
	if content, err := os.ReadFile(filepath.Join(n.dir, "data", "roles", "store", "written")); err != nil || string(content) != "kept" {
		t.Errorf("its data is %q, %v", content, err)
	}

	other := pair
	other.Line = "another build"
	third := n.add(t, other)
	third.Version = "3.0.0"
	desire(third, first)
	trial := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
		return s.GetPluginVersion() == "3.0.0" && s.GetState() == ready
	})
	if !strings.Contains(trial.GetReason(), "version 3.0.0 is on trial until ") || trial.GetRolledBack() != nil {
		t.Errorf("status %v", trial)
	}
	if err := syscall.Kill(int(trial.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
		return s.GetPluginVersion() == "1.0.0" && s.GetState() == ready
	})

	// The next core's trials are short.
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	next, err := openRealNode(n.dir, testLog(t), func(c *roles.Config) { c.Probation = time.Second })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := next.stop(); err != nil {
			t.Error(err)
		}
	}()
	n = next
	desire(third, first)
	n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
		return s.GetPluginVersion() == "1.0.0" && s.GetState() == ready
	})
	if _, err := n.Restart(t.Context(), "store", false); err != nil {
		t.Fatal(err)
	}
	kept := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
		return s.GetPluginVersion() == "3.0.0" && s.GetState() == ready && s.GetReason() == ""
	})
	if kept.GetRolledBack() != nil {
		t.Errorf("status %v", kept)
	}
}
