package cgroup_test

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	leaktest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

func hog(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "hog"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", built.dir, "./testdata/hog")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, output)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "hog")
}

// open opens the groups of a node of this test alone, which are gone after it. Its name is nobody else's: groups are the whole machine's, and process IDs are not.
func open(t *testing.T) (*cgroup.Tree, string) {
	t.Helper()
	node := "reeve-test-" + strings.ToLower(rand.Text())
	tree, err := cgroup.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	if tree == nil || len(tree.Missing()) > 0 {
		t.Skipf("this machine and user cannot do: %v", tree.Missing())
	}
	t.Cleanup(func() {
		group, err := tree.Make("last", cgroup.Limits{})
		if err != nil {
			t.Error(err)
			return
		}
		if err := tree.Sweep(func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		for _, path := range group.Paths() {
			if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
				t.Errorf("the group of the node is left: %v", err)
			}
		}
	})
	return tree, node
}

func made(t *testing.T, tree *cgroup.Tree, name string, limits cgroup.Limits) *cgroup.Group {
	t.Helper()
	group, err := tree.Make(name, limits)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

type process struct {
	*exec.Cmd
	output *bufio.Reader
}

// start starts a process in a group.
func start(t *testing.T, group *cgroup.Group, what string) process {
	t.Helper()
	command := exec.CommandContext(t.Context(), hog(t), what)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := group.Add(command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(input, "x"); err != nil {
		t.Fatal(err)
	}
	return process{command, bufio.NewReader(output)}
}

// value is what a file of a group says, in whichever hierarchy it is.
func value(t *testing.T, group *cgroup.Group, names ...string) string {
	t.Helper()
	for _, path := range group.Paths() {
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(path, name)); err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	t.Fatalf("none of %v in %v", names, group.Paths())
	return ""
}

// TestLimits: limits are set, changed by making a group again, and taken off.
func TestLimits(t *testing.T) {
	tree, node := open(t)
	group := made(t, tree, "consensus.12", cgroup.Limits{MemoryBytes: 64 << 20, Processes: 30, CPUWeight: 200})
	for _, path := range group.Paths() {
		if !strings.HasSuffix(path, "/"+node+"/consensus.12") {
			t.Errorf("a group at %s", path)
		}
	}
	if got := value(t, group, "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(64<<20) {
		t.Errorf("memory: %s", got)
	}
	if got := value(t, group, "pids.max"); got != "30" {
		t.Errorf("processes: %s", got)
	}
	if got := value(t, group, "cpu.shares", "cpu.weight"); got != "2048" && got != "200" {
		t.Errorf("cpu: %s", got)
	}
	for _, megabytes := range []int64{128, 32} { // more, and less
		made(t, tree, "consensus.12", cgroup.Limits{MemoryBytes: megabytes << 20})
		if got := value(t, group, "memory.limit_in_bytes", "memory.max"); got != strconv.FormatInt(megabytes<<20, 10) {
			t.Errorf("memory: %s", got)
		}
	}
	made(t, tree, "consensus.12", cgroup.Limits{})
	if got := value(t, group, "pids.max"); got != "max" {
		t.Errorf("processes: %s", got)
	}
	if got := value(t, group, "memory.limit_in_bytes", "memory.max"); got == strconv.Itoa(32<<20) {
		t.Errorf("memory: %s", got)
	}
	if err := group.Remove(); err != nil {
		t.Error(err)
	}
	for _, path := range group.Paths() {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
	if err := group.Remove(); err != nil {
		t.Errorf("remove what is gone: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		if _, err := tree.Make(name, cgroup.Limits{}); err == nil {
			t.Errorf("a group named %q", name)
		}
	}
}

// TestOutOfMemory: who uses too much is ended, and counted.
func TestOutOfMemory(t *testing.T) {
	tree, _ := open(t)
	group := made(t, tree, "hog.1", cgroup.Limits{MemoryBytes: 32 << 20})
	if count, err := group.OutOfMemory(); count != 0 || err != nil {
		t.Errorf("counts %d %v", count, err)
	}
	p := start(t, group, "memory")
	_ = p.Wait()
	if status := p.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v", p.ProcessState)
	}
	if count, err := group.OutOfMemory(); count == 0 || err != nil {
		t.Errorf("counts %d %v", count, err)
	}
}

// TestProcesses: the number of processes is bounded, all are found, and all are killed with those that they make.
func TestProcesses(t *testing.T) {
	tree, _ := open(t)
	group := made(t, tree, "hog.1", cgroup.Limits{Processes: 40})
	p := start(t, group, "processes")
	line, err := p.output.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if started, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || started < 5 || started >= 40 {
		t.Errorf("started %s", line)
	}
	pids, err := group.Processes()
	if err != nil || !slices.Contains(pids, p.Process.Pid) || len(pids) < 5 {
		t.Errorf("processes %v %v", pids, err)
	}
	if err := group.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if err := group.Remove(); err != nil {
		t.Fatal(err)
	}
	if pids, err := group.Processes(); len(pids) > 0 || err != nil {
		t.Errorf("processes of a group that is gone: %v %v", pids, err)
	}
	if err := group.Kill(); err != nil {
		t.Errorf("kill a group that is gone: %v", err)
	}
}

// TestSweep: a later core finds the groups again, keeps some and ends the others.
func TestSweep(t *testing.T) {
	tree, node := open(t)
	kept := start(t, made(t, tree, "keep.1", cgroup.Limits{}), "sleep")
	ended := start(t, made(t, tree, "end.1", cgroup.Limits{}), "sleep")
	again, err := cgroup.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- ended.Wait() }()
	if err := again.Sweep(func(name string) bool { return name == "keep.1" }); err != nil {
		t.Fatal(err)
	}
	if err := <-reaped; err == nil {
		t.Error("it was not killed")
	}
	if pids, err := made(t, again, "keep.1", cgroup.Limits{}).Processes(); err != nil || !slices.Equal(pids, []int{kept.Process.Pid}) {
		t.Errorf("kept %v %v", pids, err)
	}
	_ = kept.Process.Kill()
	_ = kept.Wait()
	var nobody *cgroup.Tree
	if err := nobody.Sweep(func(string) bool { return false }); err != nil || len(nobody.Missing()) != 3 {
		t.Errorf("a machine without control groups: %v %v", err, nobody.Missing())
	}
	if group, err := nobody.Make("a.1", cgroup.Limits{Processes: 1}); err != nil || group.Add(os.Getpid()) != nil || group.Kill() != nil || group.Remove() != nil {
		t.Errorf("a group on a machine without control groups: %v", err)
	}
}

// TestOrdinaryUser: who may make no groups misses everything, with reasons, and nothing fails.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("/tmp", "cg")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		tests := filepath.Join(dir, "tests")
		if output, err := exec.Command("install", "-m", "755", self, tests).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), tests, "-test.run=TestOrdinaryUser", "-test.v", "-test.timeout=5m")
		command.Dir = "/"
		user := uint32(usertest.New(t))
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}}
		if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: TestOrdinaryUser") {
			t.Fatalf("%v: %s", err, output)
		}
		return
	}
	tree, err := cgroup.Open("reeve-nobody")
	if err != nil {
		t.Fatal(err)
	}
	missing := tree.Missing()
	if len(missing) != 3 {
		t.Fatalf("missing: %v", missing)
	}
	for i, name := range []string{"cgroup-cpu", "cgroup-memory", "cgroup-processes"} {
		if missing[i].GetName() != name || missing[i].GetReason() == "" {
			t.Errorf("missing: %v", missing[i])
		}
	}
	group, err := tree.Make("a.1", cgroup.Limits{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if paths := group.Paths(); len(paths) > 0 {
		t.Errorf("groups %v", paths)
	}
}

// A thread that has entered a group bears its children there, and does not make the process one of the group's, which would be killed with it.
func TestEnter(t *testing.T) {
	tree, err := cgroup.Open("reeve-test-" + strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	group, err := tree.Make("entered.1", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan *exec.Cmd)
	leave := make(chan struct{})
	var enter func()
	enter = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		if unix.Gettid() == unix.Getpid() {
			// The main thread is refused. Nobody else is given it while this goroutine has it, so that the other one runs on a thread that can end.
			if err := group.Enter(); err == nil {
				t.Error("the main thread was let in")
			}
			go enter()
			<-leave
			runtime.UnlockOSThread()
			return
		}
		command := exec.Command("/bin/sleep", "1000")
		if err := errors.Join(group.Enter(), command.Start()); err != nil {
			t.Error(err)
		}
		started <- command
		<-leave
	}
	go enter()
	command := <-started
	if command.Process == nil {
		t.FailNow()
	}
	if err := group.Complete(command.Process.Pid); err != nil {
		t.Error(err)
	}
	if pids, err := group.Processes(); err != nil || !slices.Equal(pids, []int{command.Process.Pid}) {
		t.Errorf("the group has %v, %v; want the child %d alone", pids, err, command.Process.Pid)
	}
	if err := group.Kill(); err != nil {
		t.Error(err)
	}
	_ = command.Wait()
	close(leave)
	if err := group.Remove(); err != nil {
		t.Error(err)
	}
}
