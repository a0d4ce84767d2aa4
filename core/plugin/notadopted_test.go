package plugin_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
)

// What cannot be adopted is ended, and nothing else is.
func TestNotAdopted(t *testing.T) {
	t.Parallel()
	for name, of := range inorder.Of(map[string]struct {
		spoil func(t *testing.T, n *testNode, path string, r recorded)
		// gone says that the process of the record has nothing to do with the node, and lives on.
		gone bool
	}{
		"record torn": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			if err := os.Truncate(path, 40); err != nil {
				t.Fatal(err)
			}
		}},
		"record of another version": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { r["version"] = 1 })
		}},
		"record of another boot": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { r["bootId"] = "another" })
		}},
		"record of another instance": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { r["instanceId"] = "reeve-other/one/1" })
		}},
		"record without what was launched": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { delete(r, "spec") })
		}},
		"record from before the connection": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { delete(r, "pid"); delete(r, "socket") })
		}},
		"another handshake": {spoil: func(t *testing.T, _ *testNode, path string, _ recorded) {
			spoil(t, path, func(r map[string]any) { r["protocol"] = 99 })
		}},
		"a socket elsewhere": {spoil: func(t *testing.T, n *testNode, path string, r recorded) {
			spoil(t, path, func(r map[string]any) { r["socket"] = filepath.Join(n.dir, "sock") })
		}},
		"another start time": {spoil: func(t *testing.T, _ *testNode, path string, r recorded) {
			spoil(t, path, func(fields map[string]any) { fields["start"] = r.Start + 1 })
		}},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			alive := bystander(t)
			kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready"}})
			wait("ready")
			kill()
			path, r := node.record(t, "one.1")
			of.spoil(t, node, path, r)
			adopted := node.next(t).adopt(t)
			if adopted["one"] != nil || adopted["two"] == nil {
				t.Errorf("adopted %v", adopted)
			}
			if left := node.processes(t); len(left) != 1 {
				t.Errorf("processes %v", left)
			}
			if left := node.entries(t, "run", "instances"); !slices.Equal(left, []string{"two.1.err", "two.1.json", "two.1.log", "two.1.out"}) {
				t.Errorf("run/instances holds %v", left)
			}
			if !alive() {
				t.Error("a process of another node was ended")
			}
		})
	}
}

// A role that listens no more is waited for. It is alone on its node, since the core has no more patience with others, which may be slow.
func TestWithoutListenerIsNotAdopted(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	alive := bystander(t)
	alone := plugintest.Variant{Name: "alone", Roles: everything.Roles[:1]}
	kill, wait := node.startCoreWith(t, coreWork{Variant: alone, Configuration: plugintest.Configuration{Do: "ready"}})
	wait("ready")
	kill()
	_, r := node.record(t, "one.1")
	if err := os.Remove(r.Socket); err != nil {
		t.Fatal(err)
	}
	next := node.next(t)
	next.patience(t, plugin.Patience{Connect: time.Second})
	if adopted := next.adopt(t); len(adopted) != 0 {
		t.Errorf("adopted %v", adopted)
	}
	node.nothingLeft(t)
	if !alive() {
		t.Error("a process of another node was ended")
	}
}

// The number of a process that has ended may be another's by now, which is nobody's business.
func TestReusedNumberIsNotTouched(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready"}})
	wait("ready")
	kill()
	path, r := node.record(t, "one.1")
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of its process", func() bool { return !alive(r.PID) })
	// The number is given to this one by the record and not by the kernel: it is the leader of a group, as the former one was.
	other := exec.Command("cat")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	answers := echo(t, other)
	spoil(t, path, func(r map[string]any) { r["pid"] = other.Process.Pid })
	if adopted := node.next(t).adopt(t); adopted["one"] != nil || adopted["two"] == nil {
		t.Errorf("adopted %v", adopted)
	}
	if !answers() {
		t.Error("the process with the number of a role was ended")
	}
}

// A process that has ended and that nobody has collected is none.
func TestZombieIsNotAdopted(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	of := spec(node.add(t, everything), everything, plugintest.Configuration{Do: "ready"})
	remit, err := node.launcher.Prepare(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := node.launcher.Launch(t.Context(), remit, of, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	pid := instance.Process().PID
	instance.Leave() // whose child it stays: nobody collects it
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of its process", func() bool { return !alive(pid) })
	if adopted := node.next(t).adopt(t); len(adopted) != 0 {
		t.Errorf("adopted %v", adopted)
	}
	node.nothingLeft(t)
}

func TestImpostorIsNotAdopted(t *testing.T) {
	t.Parallel()
	for name, signal := range inorder.Of(map[string]syscall.Signal{"another listener": syscall.SIGUSR1, "another ID": syscall.SIGUSR2}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			impostor := plugintest.Variant{Name: "impostor", Before: "raw", Impostor: true, Roles: []plugintest.Role{{Name: "one"}}}
			kill, wait := node.startCoreWith(t, coreWork{Variant: impostor})
			wait("ready")
			kill()
			_, r := node.record(t, "one.1")
			if err := syscall.Kill(r.PID, signal); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(node.dir, "run", "instances", "one.1.err", "err")
			until(t, name, func() bool {
				content, err := os.ReadFile(log)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				return strings.Contains(string(content), name)
			})
			if adopted := node.next(t).adopt(t); len(adopted) != 0 {
				t.Errorf("adopted %v", adopted)
			}
			node.nothingLeft(t)
		})
	}
}
