package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// A role that writes a gigabyte to its standard error fills neither the disk nor the memory of the core, and goes on.
func TestStderrFloods(t *testing.T) {
	const (
		// mostLogs is what all of a role's logs may take at any time, and restLogs when it is quiet: 16 MiB and the 4 MiB that are kept of what was before.
		// Before it is read, what it writes takes 16 MiB more, and where the kernel does not bound that, as much as it writes until the core comes to read.
		mostLogs, mostUnbound, restLogs = 40 << 20, 300 << 20, 21 << 20
		mostMemory                      = 32 << 20
	)
	size := 1 << 10
	if testing.Short() {
		size = 128
	}
	// One after the other: they measure.
	for name, flood := range inorder.Of(map[string]plugintest.Configuration{
		"lines":    {Do: "ready", Lines: size, Log: []string{"before"}},
		"one line": {Do: "ready", Line: size, Log: []string{"before"}},
	}) {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			runtime.GC()
			before := heap()
			began := time.Now()
			instance := node.launch(t, flood)
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			ready := make(chan struct{})
			go func() {
				defer close(ready)
				_, _ = instance.Status().Wait(t.Context(), func(s *rolev1.WatchResponse) bool { return s.GetState() == rolev1.RoleState_ROLE_STATE_READY })
			}()
			most := int64(mostLogs)
			if os.Geteuid() != 0 {
				most = mostUnbound
			}
			var logs int64
			var memory uint64
			for running := true; running; {
				select {
				case <-ready:
					running = false
				case <-instance.Done():
					t.Fatalf("it ended: %v", instance.Exit())
				case <-ticker.C:
				}
				logs = max(logs, node.logSize(t))
				memory = max(memory, heap())
			}
			took := time.Since(began)
			if logs > most {
				t.Errorf("the logs had %d MiB", logs>>20)
			}
			if memory > before+mostMemory {
				t.Errorf("the core had %d MiB on its heap, %d before", memory>>20, before>>20)
			}
			for deadline := time.Now().Add(patience); node.logSize(t) > restLogs; {
				if time.Now().After(deadline) {
					t.Fatalf("the logs have %d MiB, long after the flood", node.logSize(t)>>20)
				}
				<-ticker.C
			}
			if err := instance.CheckHealth(t.Context()); err != nil {
				t.Error(err)
			}
			t.Logf("%d MiB in %s; the logs had up to %d MiB, the heap %d MiB", size, took, logs>>20, memory>>20)
		})
	}
}

// heap is what this program has on its heap, in bytes. To ask for it does not stop the program, which is to keep the log small meanwhile.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// logSize is what role "one" takes with its logs, and with what it has written and the core has not read.
func (n *testNode) logSize(t *testing.T) int64 {
	t.Helper()
	var size int64
	for _, name := range []string{"data/logs/one.log", "data/logs/one.log.1", "run/instances/one.1.err/err"} {
		var stat syscall.Stat_t
		if err := syscall.Stat(filepath.Join(n.dir, name), &stat); err == nil {
			size += stat.Blocks * 512
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return size
}

// What is printed after the handshake is nobody's, however much it is, with the SDK and without.
func TestPrintingALot(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	waitState(t, node.launch(t, plugintest.Configuration{Do: "ready", Stdout: 16 << 10}), rolev1.RoleState_ROLE_STATE_READY)
	bare := newNode(t)
	variant := raw(nil)
	variant.Print = 16 << 10
	instance, err := bare.start(t, variant)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if err := instance.Stop(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	bare.nothingLeft(t)
}

// A plugin that forks and exits leaves nobody: neither in its group, nor in another session, nor without its name in the environment.
func TestForkAndExit(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "fork"
	var launch *plugin.LaunchError
	if _, err := node.start(t, variant); !errors.As(err, &launch) || !errors.Is(err, plugin.ErrExited) || launch.Exit == nil || launch.Exit.Code != 0 {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
	var not *plugin.NotAPluginError
	if _, err := node.launcher.Describe(t.Context(), node.add(t, variant)); !errors.As(err, &not) {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

// Errors may be as large as answers.
func TestPluginsThatRefuseAtLength(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.patience(t, plugin.Patience{Silence: time.Millisecond})
	variant := raw(map[string]string{"Describe": plugintest.HugeRefusal, "Start": plugintest.HugeRefusal})
	_, err := node.launcher.Describe(t.Context(), node.add(t, variant))
	var not *plugin.NotAPluginError
	if !errors.As(err, &not) || len(err.Error()) > 4<<10 {
		t.Errorf("error of %d bytes: %.200v", len(err.Error()), err)
	}
	var launch *plugin.LaunchError
	if _, err := node.start(t, variant); !errors.As(err, &launch) || len(err.Error()) > 4<<10 {
		t.Errorf("error %.200v", err)
	}
	instance, err := node.start(t, raw(map[string]string{"CheckHealth": plugintest.HugeRefusal, "Watch": plugintest.HugeRefusal, "Stop": plugintest.HugeRefusal}))
	if err != nil {
		t.Fatal(err)
	}
	if err := instance.CheckHealth(t.Context()); err == nil || len(err.Error()) > 4<<10 {
		t.Errorf("error %.200v", err)
	}
	if status := waitState(t, instance, rolev1.RoleState_ROLE_STATE_FAILED); len(status.GetReason()) > 4<<10 {
		t.Errorf("reason of %d bytes", len(status.GetReason()))
	}
	if err := instance.Stop(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	node.nothingLeft(t)
}

func TestSocketPathIsTooLong(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	run := filepath.Join(node.dir, strings.Repeat("r", 80))
	if err := os.Mkdir(run, 0o711); err != nil {
		t.Fatal(err)
	}
	launcher, err := node.launcherIn(run, plugin.Patience{})
	if err != nil {
		t.Fatal(err)
	}
	digest := node.add(t, everything)
	_, prepared := launcher.Prepare(t.Context(), spec(digest, everything, plugintest.Configuration{}))
	_, described := launcher.Describe(t.Context(), digest)
	for _, err := range []error{prepared, described} {
		if err == nil || !strings.Contains(err.Error(), "the kernel allows 107: choose a shorter run directory") || !strings.Contains(err.Error(), run) {
			t.Errorf("error %v", err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(run, "instances")); err != nil || len(left) > 0 {
		t.Errorf("records %v, %v", left, err)
	}
}

// An instance does not need its executable once it runs; the next one does.
func TestExecutableGoesWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, spoil := range inorder.Of(map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("#!/bin/sh\nexit 0\n"), 0o555), os.Rename(path+".new", path))
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			instance := node.launch(t, plugintest.Configuration{Do: "ready"})
			waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
			digest := node.add(t, everything)
			path := node.storedFile(digest)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if err := instance.CheckHealth(t.Context()); err != nil {
				t.Errorf("the instance that runs: %v", err)
			}
			s := spec(digest, everything, plugintest.Configuration{Do: "ready"})
			var missing *store.MissingError
			if _, err := node.launcher.Prepare(t.Context(), s); !errors.As(err, &missing) || missing.Digest != digest || !strings.Contains(err.Error(), "reeve plugin add") {
				t.Errorf("error %v", err)
			}
			if err := instance.Stop(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
			node.nothingLeft(t)
			// It may go between Prepare and Launch, too.
			node.add(t, everything)
			remit, err := node.launcher.Prepare(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); !errors.As(err, &missing) {
				t.Errorf("error %v", err)
			}
			node.nothingLeft(t)
		})
	}
}
