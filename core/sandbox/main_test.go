package sandbox_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

const (
	// coreVariable makes the test program a core that is killed, executableVariable says where the attempts are built.
	coreVariable, executableVariable = "REEVE_TEST_CORE", "REEVE_TEST_EXECUTABLE"
)

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if os.Getenv(coreVariable) != "" {
		os.Exit(core())
	}
	leaktest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

// executable is the program that attempts what it is told to.
func executable(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(executableVariable); path != "" {
		return path
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("/tmp", "sb"); built.err != nil {
			return
		}
		path := filepath.Join(built.dir, "attempt")
		build := exec.Command("go", "build", "-o", path, "./testdata/attempt")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		output, err := build.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, output)
			return
		}
		// As the store of plugins has it where the core is root: nobody else can read it.
		for path, mode := range map[string]os.FileMode{built.dir: 0o755, path: 0o511} {
			if err := os.Chmod(path, mode); err != nil {
				built.err = err
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "attempt")
}

// roleUser has the roles of the tests where the tests are root.
var roleUser = sync.OnceValue(func() uint32 {
	id, err := usertest.Take()
	if err != nil {
		panic(err)
	}
	return uint32(id)
})

func root() bool { return os.Geteuid() == 0 }

func needRoot(t testing.TB) {
	t.Helper()
	if !root() {
		t.Skip("only root can give a process mounts and a user of its own")
	}
}

// world is what a role has in these tests: a directory of its own, one with sockets to pass through, and one that is none of its business.
type world struct {
	dir, private, passage, other string
	policy                       sandbox.Policy
}

func newWorld(t testing.TB) world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := world{dir: dir, private: filepath.Join(dir, "private"), passage: filepath.Join(dir, "passage"), other: filepath.Join(dir, "other")}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if root() {
		uid, gid = roleUser(), roleUser()
	}
	for path, mode := range map[string]os.FileMode{w.private: 0o700, w.passage: 0o755, w.other: 0o777} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(path, "file"), filepath.Base(path))
	}
	for _, path := range []string{w.private, filepath.Join(w.private, "file")} {
		if err := os.Chown(path, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	w.policy = sandbox.Policy{
		UID: uid, GID: gid, OwnUser: root(), Private: []string{w.private}, Passages: []string{w.passage},
		Defaults: sandbox.Defaults{OpenFiles: 200},
	}
	return w
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func probed(t testing.TB) *sandbox.Host {
	t.Helper()
	host, err := sandbox.Probe(hclog.NewNullLogger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func opened(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// running is a process that has made its attempts, and waits.
type running struct {
	*sandbox.Child
	results map[string]string
}

// begin starts a process that makes attempts and then waits to be killed.
func begin(t testing.TB, host *sandbox.Host, p sandbox.Policy, attempts ...string) running {
	t.Helper()
	child, output := start(t, host, p, "WAIT=1", attempts)
	line := make([]byte, 1<<20)
	var text string
	for !strings.HasSuffix(text, "\n") {
		n, err := output.Read(line)
		if err != nil {
			state, waitErr := child.Process.Wait()
			t.Fatalf("%v, and the process: %v %v", err, state, waitErr)
		}
		text += string(line[:n])
	}
	r := running{Child: child, results: decode(t, text)}
	t.Cleanup(func() { r.end() })
	return r
}

func (r running) end() {
	_ = r.Process.Kill()
	_, _ = r.Process.Wait()
	r.Release()
}

func start(t testing.TB, host *sandbox.Host, p sandbox.Policy, variable string, attempts []string) (*sandbox.Child, *os.File) {
	t.Helper()
	output, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = output.Close() })
	child, err := host.Start(p, sandbox.Command{
		Executable: opened(t, executable(t)), Name: "attempt", Stdout: w, Stderr: os.Stderr,
		Env: []string{"ATTEMPTS=" + strings.Join(attempts, "\n"), variable},
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.PIDFD.Close() })
	return child, output
}

// attempt has a process make attempts, and returns what came of each.
func attempt(t testing.TB, host *sandbox.Host, p sandbox.Policy, attempts ...string) map[string]string {
	t.Helper()
	child, output := start(t, host, p, "A=B", attempts)
	defer child.Release()
	text, err := io.ReadAll(output)
	if err != nil {
		t.Fatal(err)
	}
	state, err := child.Process.Wait()
	if err != nil || !state.Success() {
		t.Fatalf("%v %v after %q", state, err, text)
	}
	return decode(t, string(text))
}

func decode(t testing.TB, text string) map[string]string {
	t.Helper()
	var results map[string]string
	if err := json.Unmarshal([]byte(text), &results); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return results
}

const anyError = "any"

// expect has a process make attempts: what each is to come to is "" for success, or a part of the error, or "any" error. Those in refused fail somehow.
func expect(t *testing.T, host *sandbox.Host, p sandbox.Policy, want map[string]string, refused ...string) {
	t.Helper()
	var attempts []string
	for _, name := range refused {
		want[name] = anyError
	}
	for name := range want {
		attempts = append(attempts, name)
	}
	for name, got := range attempt(t, host, p, attempts...) {
		failed := strings.HasPrefix(got, "error: ")
		if want[name] == anyError && failed {
			continue
		}
		if want[name] == "" && failed || want[name] != "" && (!failed || !strings.Contains(got, want[name])) {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
}

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	if network == "unix" {
		if err := os.Chmod(address, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return listener
}

// TestAsOrdinaryUser runs other tests once more, as a user who is nobody in particular.
func TestAsOrdinaryUser(t *testing.T) {
	needRoot(t)
	dir := newWorld(t).dir
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Copied by another process: one that this program forks meanwhile would hold a file open that is written here, and keep it from being executed.
	tests, program := filepath.Join(dir, "tests"), filepath.Join(dir, "attempt")
	for from, to := range map[string]string{self: tests, executable(t): program} {
		if output, err := exec.Command("install", "-m", "755", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	command := exec.CommandContext(t.Context(), tests, "-test.v="+fmt.Sprint(testing.Verbose()), "-test.timeout=10m", "-test.run="+ordinaryTests)
	command.Dir = "/"
	command.Env = []string{executableVariable + "=" + program, "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
	ordinaryUser := uint32(usertest.New(t))
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser, Groups: []uint32{}}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("as user %d: %v\n%s", ordinaryUser, err, output)
	}
	if testing.Verbose() {
		t.Logf("as user %d:\n%s", ordinaryUser, output)
	}
}
