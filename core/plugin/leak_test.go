package plugin_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Launches, failed or not, cost nothing that stays: goroutines are counted by TestMain, file descriptors and processes here. It runs alone.
func TestLaunchesLeakNothing(t *testing.T) {
	node := newNode(t)
	broken := everything
	broken.Before = "exit"
	s := spec(node.add(t, broken), broken, plugintest.Configuration{})
	fail := func() {
		remit, err := node.launcher.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); err == nil {
			t.Fatal("it was launched")
		}
	}
	succeed := func() {
		instance := node.launch(t, plugintest.Configuration{Do: "ready"})
		waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
		if err := instance.Stop(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	fail()
	succeed()
	before := descriptors(t)
	for range 15 {
		fail()
		succeed()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d file descriptors before, %d after", before, after)
	}
	node.nothingLeft(t)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
