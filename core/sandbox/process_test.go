package sandbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/remit"
)

// TestProcess looks at what the kernel says of a role without any grants.
func TestProcess(t *testing.T) {
	w, host := newWorld(t), probed(t)
	if root() {
		if missing := host.Missing(w.policy); len(missing) > 0 { // no bounds that would need control groups
			t.Errorf("missing: %v", missing)
		}
	}
	got := attempt(t, host, w.policy, "status Uid", "status Gid", "status Groups", "status CapInh", "status CapPrm", "status CapEff", "status CapAmb",
		"status CapBnd", "status NoNewPrivs", "status Seccomp", "group", "descriptors", "status TracerPid")
	user := strings.TrimSpace(strings.Repeat(fmt.Sprint(w.policy.UID, " "), 4))
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"status Uid": user, "status Gid": user, "status Groups": "", "status CapInh": none, "status CapPrm": none, "status CapEff": none,
		"status CapAmb": none, "status CapBnd": none, "status NoNewPrivs": "1", "status Seccomp": "2", "group": "true", "descriptors": "0 1 2",
		"status TracerPid": "0",
	} {
		if name == "status CapBnd" && !root() {
			continue // only root can, and without root nothing can be gained from it
		}
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// TestNotDumpable: what its own user could see of a role, were it anybody's.
func TestNotDumpable(t *testing.T) {
	needRoot(t)
	w, host := newWorld(t), probed(t)
	child := begin(t, host, w.policy)
	var stat unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", child.Process.Pid), &stat); err != nil || stat.Uid != 0 {
		t.Errorf("the environment of a role belongs to user %d (%v)", stat.Uid, err)
	}
	for _, path := range []string{"environ", "mem", "maps", "root/etc/passwd", "cwd", "fd/0"} {
		look := exec.Command("head", "-c", "1", fmt.Sprintf("/proc/%d/%s", child.Process.Pid, path))
		look.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: roleUser(), Gid: roleUser(), Groups: []uint32{}}}
		if output, err := look.CombinedOutput(); err == nil && len(output) > 0 {
			t.Errorf("another process of its user reads %s: %q", path, output)
		}
	}
	readable := filepath.Join(w.dir, "readable")
	if output, err := exec.Command("install", "-m", "755", executable(t), readable).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var part *sandbox.PartError
	if _, err := host.Start(w.policy, sandbox.Command{Executable: opened(t, readable), Name: "x"}); !errors.As(err, &part) || part.Part != sandbox.MissingNotDumpable {
		t.Errorf("an executable that the role can read: %v", err)
	}
}

// TestExecErrors: an executable that cannot be executed is told from a sandbox that cannot be made.
func TestExecErrors(t *testing.T) {
	w, host := newWorld(t), probed(t)
	for name, c := range map[string]struct {
		mode os.FileMode
		text string
		want error
	}{
		"not executable":    {0o400, "\x7fELF", syscall.EACCES},
		"not a program":     {0o511, "hello", syscall.ENOEXEC},
		"other interpreter": {0o511, "#!/nothing/there\n", syscall.ENOENT},
	} {
		path := filepath.Join(w.dir, "program")
		write(t, path, c.text)
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := host.Start(w.policy, sandbox.Command{Executable: opened(t, path), Name: "program"})
		if !errors.Is(err, sandbox.ErrExec) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(w.dir, "busy")
	if output, err := exec.Command("install", "-m", "511", executable(t), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if !root() {
		return // it cannot open the file for writing
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if _, err := host.Start(w.policy, sandbox.Command{Executable: opened(t, path), Name: "busy"}); !errors.Is(err, syscall.ETXTBSY) {
		t.Errorf("a file that is being written: %v", err)
	}
}

// TestThreads: what was done to the threads of 200 starts stays with them, and they go.
func TestThreads(t *testing.T) {
	w, host := newWorld(t), probed(t)
	mountsBefore, state := w.mounts(t), statusLines(t)
	attempt(t, host, w.policy)
	// The runtime may make some of its own, and on a busy machine more of them, but not every time.
	for turn := 1; ; turn++ {
		before := threads(t)
		for range 200 {
			attempt(t, host, w.policy)
		}
		for deadline := time.Now().Add(20 * time.Second); threads(t) > before+6 && time.Now().Before(deadline); {
			runtime.Gosched()
		}
		if now := threads(t); now <= before+6 {
			break
		} else if turn == 3 {
			t.Fatalf("%d threads, before there were %d", now, before)
		}
	}
	if after := w.mounts(t); after != mountsBefore {
		t.Errorf("the mounts of the core were\n%s\nand are\n%s", mountsBefore, after)
	}
	if after := statusLines(t); after != state {
		t.Errorf("the main thread was\n%s\nand is\n%s", state, after)
	}
	// Every thread that goroutines can be given is as it was.
	for range 64 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if value, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || value != 0 {
				t.Errorf("seccomp of a thread of the core: %d %v", value, err)
			}
			if value, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || value != 0 {
				t.Errorf("no_new_privs of a thread of the core: %d %v", value, err)
			}
		})
	}
}

// mounts are those that the core sees, but for those of other tests, which are made and go meanwhile.
func (w world) mounts(t *testing.T) string {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(own(t, "mountinfo")) {
		if at := strings.Fields(line)[4]; !ofOthers(at) || strings.HasPrefix(at, w.dir+"/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// ofOthers says whether tests mount something there: volumes, what roles of whole nodes write to, the names of network namespaces.
func ofOthers(at string) bool {
	return slices.ContainsFunc([]string{"/tmp/", "/var/tmp/", "/dev/shm/", "/run/"}, func(prefix string) bool { return strings.HasPrefix(at, prefix) })
}

func own(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func statusLines(t testing.TB) string {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(own(t, "status"), "\n") {
		for _, prefix := range []string{"Cap", "NoNewPrivs", "Seccomp", "Uid", "Gid"} {
			if strings.HasPrefix(line, prefix) {
				lines = append(lines, line)
			}
		}
	}
	namespace, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(lines, namespace), "\n")
}

func threads(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestMainThread: a goroutine that is given the main thread does not use it.
func TestMainThread(t *testing.T) {
	// As many at once as make it likely that one of them is given it; each says which it has.
	const many = 300
	used := make(chan int, many)
	release := make(chan struct{})
	for range many {
		sandbox.OnThread(func() {
			used <- unix.Gettid()
			<-release
		})
	}
	seen := make(map[int]bool)
	for range many {
		thread := <-used
		if thread == os.Getpid() || seen[thread] {
			t.Errorf("thread %d was used (the main thread is %d), or used twice", thread, os.Getpid())
		}
		seen[thread] = true
	}
	close(release)
}

// core is a core that starts a role that ends with it, says so, and waits to be killed.
func core() int {
	host, err := sandbox.Probe(hclog.NewNullLogger(), nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	executable, err := os.Open(os.Getenv(executableVariable))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	p := sandbox.Policy{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), EndsWithCore: true}
	if root() {
		p.UID, p.GID, p.OwnUser = roleUser(), roleUser(), true
	}
	child, err := host.Start(p, sandbox.Command{
		Executable: executable, Name: "attempt", Env: []string{"WAIT=1", "ATTEMPTS=death-signal 0\ndeath-signal 10\ndeath-signal 9"}, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(child.Process.Pid)
	time.Sleep(time.Hour)
	return 1
}

// TestEndsWithCore: SIGKILL of the core ends the role, though the goroutine that started it has long returned.
func TestEndsWithCore(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = []string{coreVariable + "=1", executableVariable + "=" + executable(t)}
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	var pid int
	lines := bufio.NewScanner(output)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("the core says nothing")
		}
		if strings.HasPrefix(lines.Text(), "{") {
			for name, want := range map[string]string{"death-signal 0": "error: operation not permitted", "death-signal 10": "error: operation not permitted", "death-signal 9": ""} {
				if got := decode(t, lines.Text())[name]; got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		} else if pid, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(lines.Text())
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if ended(fd, 50) {
		t.Fatal("the role ended before the core")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !ended(fd, 60_000) {
		_ = unix.Kill(pid, unix.SIGKILL)
		t.Fatal("the role outlives the core")
	}
}

// ended waits for a process to end, some milliseconds at most.
func ended(pidfd, milliseconds int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, milliseconds)
		if err != unix.EINTR {
			return n == 1
		}
	}
}

// TestTracedThread: a role whose thread has the core for its tracer is still waited for.
func TestTracedThread(t *testing.T) {
	// Its tracer is the thread that is its parent then: the one that started it, which lives as long as a role that ends with the core does.
	t.Run("ends with core", func(t *testing.T) { tracedThread(t, true) })
	// Here that thread has ended or is ending, and what it traced with it, or another one of the core is the parent by then.
	t.Run("outlives core", func(t *testing.T) { tracedThread(t, false) })
}

func tracedThread(t *testing.T, endsWithCore bool) {
	w, host := newWorld(t), probed(t)
	w.policy.EndsWithCore = endsWithCore
	child := begin(t, host, w.policy, "traced-thread ")
	if got := child.results["traced-thread "]; got != "" {
		t.Skipf("the thread found no tracer: %s", got)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if endsWithCore && ended(int(child.PIDFD.Fd()), 300) {
		t.Error("it ended by itself: there is nothing to test")
	}
	for deadline := time.Now().Add(time.Minute); !ended(int(child.PIDFD.Fd()), 20); {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
		child.Bury()
	}
	state, err := child.Process.Wait()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v %v", state, err)
	}
	child.Bury() // what is gone
}

// TestJoinsNoGroup: a role cannot make itself a member of the process group of another role, or of the core.
func TestJoinsNoGroup(t *testing.T) {
	w, host := newWorld(t), probed(t)
	other := begin(t, host, w.policy)
	expect(t, host, w.policy, map[string]string{
		fmt.Sprint("join ", other.Process.Pid): notPermitted, fmt.Sprint("join ", unix.Getpgrp()): notPermitted, "group ": "",
	})
}

// TestPrivileged: what was approved by that word has no sandbox.
func TestPrivileged(t *testing.T) {
	w, host := newWorld(t), probed(t)
	w.policy.Remit = remit.Remit{Privileged: true}
	w.policy.UID, w.policy.GID = uint32(os.Getuid()), uint32(os.Getgid())
	if missing := host.Missing(w.policy); missing != nil {
		t.Errorf("missing of nothing: %v", missing)
	}
	got := attempt(t, host, w.policy, "status Uid", "status Seccomp", "status NoNewPrivs", "group", "status CapEff", "read "+w.other+"/file", "write "+w.other+"/new")
	capabilities := ""
	for _, line := range strings.Split(statusLines(t), "\n") {
		if value, ok := strings.CutPrefix(line, "CapEff:\t"); ok {
			capabilities = value
		}
	}
	user := strings.TrimSpace(strings.Repeat(fmt.Sprint(os.Getuid(), " "), 4))
	for name, want := range map[string]string{
		"status Uid": user, "status Seccomp": "0", "status NoNewPrivs": "0", "group": "true", "status CapEff": capabilities, "read " + w.other + "/file": "other",
		"write " + w.other + "/new": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
