package plugin_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
)

// startCore runs a core as a process of its own, and returns what kills it and what waits for a line of its output.
func (n *testNode) startCore(t *testing.T) (kill func(), wait func(line string)) {
	t.Helper()
	return n.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready", Children: childrenThatAreFound()}})
}

// startCoreWith does so with other work.
func (n *testNode) startCoreWith(t *testing.T, work coreWork) (kill func(), wait func(line string)) {
	t.Helper()
	work.Digest = n.add(t, work.Variant)
	encoded, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "work"), encoded, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), coreVariable+"="+n.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return kill, func(line string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == line {
				return
			}
			t.Log(lines.Text())
		}
		t.Fatalf("the core ended before it said %q", line)
	}
}

// bystander is a process that carries the mark of another node, and must survive whatever is done to this one.
func bystander(t *testing.T) (alive func() bool) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env = []string{plugin.InstanceVariable + "=reeve-another/one/1"}
	return echo(t, cmd)
}

// echo starts cat, and returns how to have it answer. One that was killed before does not.
func echo(t *testing.T, cat *exec.Cmd) (answers func() bool) {
	t.Helper()
	input, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cat.Process.Kill()
		_ = cat.Wait()
	})
	return func() bool {
		_, _ = input.Write([]byte{'?'}) // what fails is not answered
		_, err := io.ReadFull(output, make([]byte, 1))
		return err == nil
	}
}

func TestInstancesOutliveTheCoreAndAreReaped(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	alive := bystander(t)
	kill, wait := node.startCore(t)
	wait("ready")
	kill()
	before := node.processes(t)
	if len(before) < 6 {
		t.Fatalf("only %v outlived the core", before)
	}
	if records := node.entries(t, "run", "instances"); len(records) != 8 {
		t.Fatalf("records %v", records)
	}
	next, err := openNode(node.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.launcher.StopRecorded(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)
	if !alive() {
		t.Error("a process of another node was killed")
	}
	// Another time there is nothing to do.
	if err := next.launcher.StopRecorded(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The numbers go on where the dead core left them.
	if instance := next.launch(t, plugintest.Configuration{Do: "ready"}); instance.Remit().Name != "one.2" {
		t.Errorf("the next instance is %s", instance.Remit().Name)
	}
}

func TestReapFindsWhatNoRecordNames(t *testing.T) {
	t.Parallel()
	for name, spoil := range inorder.Of(map[string]func(path string) error{
		"malformed":       func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"unknown version": func(path string) error { return os.WriteFile(path, []byte(`{"version":99,"pid":1}`), 0o600) },
		"absent":          os.Remove,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			kill, wait := node.startCore(t)
			wait("ready")
			kill()
			records, err := filepath.Glob(filepath.Join(node.dir, "run", "instances", "*.json"))
			if err != nil || len(records) != 2 {
				t.Fatalf("records %v, %v", records, err)
			}
			for _, record := range records {
				if err := spoil(record); err != nil {
					t.Fatal(err)
				}
			}
			next, err := openNode(node.dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.launcher.StopRecorded(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := node.processes(t); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if name != "absent" {
				next.log.wait(t, func(l logged) bool { return strings.Contains(l.message, "record of an instance is not readable") })
			}
		})
	}
}

// killAll kills what is left of the node's instances, and waits until it has ended.
func (n *testNode) killAll(t *testing.T) {
	t.Helper()
	for left := n.processes(t); len(left) > 0; left = n.processes(t) {
		for _, process := range left {
			pid, err := strconv.Atoi(strings.Fields(process)[0])
			if err != nil {
				t.Fatal(err)
			}
			held, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has ended
			}
			if err := unix.PidfdSendSignal(held, unix.SIGKILL, nil, 0); err == nil {
				_, err = unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, 10_000)
				if err != nil && !errors.Is(err, unix.EINTR) {
					t.Error(err)
				}
			}
			_ = unix.Close(held)
		}
	}
}

// What instances have left mounted is taken away also where the volume is not open, once nothing of them runs, and not before.
func TestSpoolsAreTakenAwayWithoutTheVolume(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCore(t)
	wait("ready")
	kill()
	run := filepath.Join(node.dir, "run")
	spools := func() (found []string) {
		found, err := filepath.Glob(filepath.Join(run, "instances", "*.err"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := spools()
	running, err := plugin.TakeAwaySpools(run, "reeve-"+filepath.Base(node.dir), hclog.NewNullLogger())
	if err != nil || !running || len(before) == 0 || len(spools()) != len(before) {
		t.Fatalf("while they run (%t): %v; of %v there are %v", running, err, before, spools())
	}
	node.killAll(t)
	running, err = plugin.TakeAwaySpools(run, "reeve-"+filepath.Base(node.dir), hclog.NewNullLogger())
	if err != nil || running || len(spools()) != 0 {
		t.Errorf("when they have ended (%t): %v; there are %v", running, err, spools())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), run) {
		t.Errorf("something is mounted below %s: %v", run, err)
	}
	// The next core finds the rest.
	next, err := openNode(node.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.launcher.StopRecorded(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.nothingLeft(t)
}

// A core may be killed at any moment of a launch. The moments are spread over what one takes.
func TestReapAfterEveryMoment(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for moment := 0; moment < 12; moment += momentsApart {
		kill, wait := node.startCore(t)
		wait("begins")
		timer := time.NewTimer(time.Duration(moment*moment) * 2 * time.Millisecond)
		<-timer.C
		kill()
		next, err := openNode(node.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.launcher.StopRecorded(t.Context()); err != nil {
			t.Fatal(err)
		}
		node.nothingLeft(t)
		if t.Failed() {
			t.Fatalf("killed at moment %d", moment)
		}
	}
}
