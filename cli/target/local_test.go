package target_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/internal/testcluster"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(callVariable); dir != "" {
		os.Exit(callFromOutside(dir))
	}
	goleak.VerifyTestMain(withCurator{m})
}

// withCurator runs tests beside the program that serves curators.
type withCurator struct{ m *testing.M }

// Run implements goleak.TestingM.
func (w withCurator) Run() int {
	stop, err := testcluster.Serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// For all tests of the package, since the environment is read once: none is to notice it. Nobody proxies there, and connections to loopback addresses are never proxied.
	if err := os.Setenv("HTTPS_PROXY", "http://127.0.0.1:1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := w.m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "run"), 0o777), os.Chmod(filepath.Join(dir, "run"), 0o777), os.Chmod(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listenAs listens on the socket of a dev directory as another user.
func listenAs(t *testing.T, dir string, uid int) net.Listener {
	t.Helper()
	type result struct {
		listener net.Listener
		err      error
	}
	results := make(chan result)
	go func() {
		// The kernel remembers who called listen, and user IDs are a thread's. The thread ends with this goroutine, as it stays locked.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			results <- result{err: errno}
			return
		}
		listener, err := net.Listen("unix", filepath.Join(dir, "run/node.sock"))
		results <- result{listener, err}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.listener.Close() })
	return r.listener
}

func TestDialLocal(t *testing.T) {
	dir := directory(t)
	ctx := context.Background()
	if _, _, err := target.DialLocal(ctx, filepath.Join(dir, "none")); !errors.Is(err, target.ErrNotRunning) {
		t.Errorf("no directory: %v", err)
	}
	if _, _, err := target.DialLocal(ctx, dir); !errors.Is(err, target.ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "run/node.sock"))
	if err != nil {
		t.Fatal(err)
	}
	conn, pid, err := target.DialLocal(ctx, dir)
	if err != nil || pid != os.Getpid() {
		t.Fatalf("process %d, %v", pid, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(conn.Close(), listener.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := target.DialLocal(ctx, dir); !errors.Is(err, target.ErrNotRunning) {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestImpostor has somebody else listen where the node should.
func TestImpostor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const other = 54321
	dir := directory(t)
	listenAs(t, dir, other)
	if _, _, err := target.DialLocal(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "user 54321 listens") {
		t.Errorf("a stranger was believed: %v", err)
	}
	// Root may operate another one's node, which listens in that one's directory.
	if err := os.Chown(dir, other, other); err != nil {
		t.Fatal(err)
	}
	conn, _, err := target.DialLocal(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// largeNode answers with more than gRPC takes by default.
type largeNode struct {
	nodev1.UnimplementedNodeServiceServer
}

func (largeNode) GetStatus(context.Context, *nodev1.GetStatusRequest) (*nodev1.GetStatusResponse, error) {
	return &nodev1.GetStatusResponse{Status: &nodev1.Status{NodeId: strings.Repeat("x", limits.Message-1024)}}, nil
}

func TestLargeAnswer(t *testing.T) {
	dir := directory(t)
	listener, err := net.Listen("unix", filepath.Join(dir, "run/node.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	nodev1.RegisterNodeServiceServer(server, largeNode{})
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := target.NewLocalClient(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	response, err := nodev1.NewNodeServiceClient(conn).GetStatus(t.Context(), &nodev1.GetStatusRequest{})
	if err != nil || len(response.GetStatus().GetNodeId()) != limits.Message-1024 {
		t.Errorf("an answer of nearly %d bytes: %v", limits.Message, err)
	}
}

// What a dead core left is told by its records, as far as they are of processes that run.
func TestRolesThatRunOnWithoutACore(t *testing.T) {
	dir := directory(t)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19]
	record := func(name, role, boot, start string, pid int) {
		t.Helper()
		content := fmt.Sprintf(`{"version":3,"role":%q,"bootId":%q,"pid":%d,"start":%s}`, role, boot, pid, start)
		if err := os.WriteFile(filepath.Join(dir, "run", "instances", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "run", "instances"), 0o700); err != nil {
		t.Fatal(err)
	}
	here := strings.TrimSpace(string(boot))
	open := func(want string) {
		t.Helper()
		for _, options := range []target.Options{{Dir: dir}, {Socket: filepath.Join(dir, "run", "node.sock")}} {
			if _, err := target.Open(t.Context(), options); fault.CodeOf(err) != fault.Unreachable || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", options, err)
			}
		}
	}
	record("another-boot.1.json", "another-boot", "0", start, os.Getpid())
	record("another-process.1.json", "another-process", here, "1", os.Getpid())
	record("begun.1.json", "begun", here, "0", 0)
	record("gone.1.json", "gone", here, start, 1<<22+1)
	record("draft.1.json.tmp", "draft", here, start, os.Getpid())
	if left := target.Left(filepath.Join(dir, "run")); len(left) > 0 {
		t.Errorf("%v run on", left)
	}
	if _, err := target.Open(t.Context(), target.Options{Dir: dir}); err == nil || strings.Contains(err.Error(), "run on") || strings.Contains(err.Error(), "runs on") {
		t.Errorf("with nothing left: %v", err)
	}
	record("store.7.json", "store", here, start, os.Getpid())
	open(", and the process of its role store runs on without it")
	record("api.2.json", "api", here, start, os.Getpid())
	open(", and 2 role processes run on without it (api, store)")
	// The core lives, and somebody removed its socket.
	lock, err := os.Create(filepath.Join(dir, "run", "lock"))
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := target.LeftIn(dir); len(left) > 0 {
		t.Errorf("beside a core %v run on", left)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if left := target.LeftIn(dir); len(left) != 2 {
		t.Errorf("without a core %v run on", left)
	}
	// The run directory is that of another cluster, at the place where this one was.
	parameters := "directories:\n  system: " + filepath.Join(t.TempDir(), "system") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "reeved.yaml"), []byte(parameters), 0o600); err != nil {
		t.Fatal(err)
	}
	if left := target.LeftIn(dir); len(left) > 0 {
		t.Errorf("of a directory that was moved %v run on", left)
	}
}
