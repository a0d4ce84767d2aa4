package door_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// connectHelper, in the environment, names the socket through which the test binary is to read the key of the user ant.
const connectHelper = "REEVE_TEST_CONNECT"

func runConnectHelper() {
	socket := os.Getenv(connectHelper)
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Bound)
	defer cancel()
	// The door speaks first to whom it lets in. A refused client only sees that its connections end, and would try again and again.
	connection, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	_ = connection.SetDeadline(time.Now().Add(storetest.Bound))
	switch n, err := connection.Read(make([]byte, 1)); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		fmt.Println(err)
		os.Exit(2)
	case n == 0:
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"unix://" + socket},
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	if _, err := client.Get(ctx, ownKey); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Println("let in")
}

// connect runs the helper and reports whether it was let in.
func connect(t *testing.T, binary, socket string, attributes *syscall.SysProcAttr) bool {
	t.Helper()
	helper := exec.Command(binary)
	helper.Env = []string{connectHelper + "=" + socket, "ETCD_CLIENT_DEBUG=fatal", "GORACE=atexit_sleep_ms=10"}
	helper.Dir = "/"
	helper.SysProcAttr = attributes
	output, err := helper.Output()
	letIn := err == nil && strings.TrimSpace(string(output)) == "let in"
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("the helper did not run: %v, %s", err, output)
	}
	t.Logf("the helper: %s", bytes.TrimSpace(output))
	return letIn
}

// publicBinary is a copy of the test binary that every user can run.
func publicBinary(t *testing.T, directory string) string {
	t.Helper()
	source, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	path := filepath.Join(directory, "helper")
	target, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

// TestOnlyTheInstancesUser lets processes of several users connect to one instance's socket. The modes of the files are out of the way, so that only the
// check of the peer can refuse.
func TestOnlyTheInstancesUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of other users; TestOnlyTheInstancesGroup covers a shared user")
	}
	const its, anothers = 64231, 64232
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	binary := publicBinary(t, n.directory)
	instance := n.instance(t, "ant.1", "ant")
	instance.Uid = its
	n.open(t, instance)
	info, err := os.Stat(instance.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o660 {
		t.Errorf("the socket has mode %o, want 660", info.Mode().Perm())
	}
	if err := os.Chmod(instance.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	as := func(id uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	if !connect(t, binary, instance.Socket, as(its)) {
		t.Error("the instance's own user was refused")
	}
	if connect(t, binary, instance.Socket, as(anothers)) {
		t.Error("another user was let in")
	}
	if connect(t, binary, instance.Socket, nil) {
		t.Error("root was let in")
	}
}

// TestOnlyTheInstancesGroup is what keeps instances apart that share a user ID.
func TestOnlyTheInstancesGroup(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	leader := exec.Command("sleep", "600")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = leader.Process.Kill()
		_ = leader.Wait()
	}()
	group := leader.Process.Pid
	instance := n.instance(t, "ant.1", "ant")
	instance.ProcessGroup = int64(group)
	instance.ProcessGroupStart = startOf(t, group)
	n.open(t, instance)

	inside := &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	if !connect(t, os.Args[0], instance.Socket, inside) {
		t.Error("a process of the instance's group was refused")
	}
	if connect(t, os.Args[0], instance.Socket, &syscall.SysProcAttr{Setpgid: true}) {
		t.Error("a process of another group was let in")
	}
	if connect(t, os.Args[0], instance.Socket, nil) {
		t.Error("a process of the test's own group was let in")
	}

	instance.ProcessGroupStart++
	n.open(t, instance)
	if connect(t, os.Args[0], instance.Socket, inside) {
		t.Error("a process of a group was let in whose leader started at another time than the instance's")
	}
}

func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	start, err := strconv.ParseUint(strings.Fields(rest)[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// TestRefusedPeersLeaveNothing connects many times as somebody else.
func TestRefusedPeersLeaveNothing(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	instance.Uid++ // not this process
	n.open(t, instance)
	before := runtime.NumGoroutine()
	for range 100 {
		connection, err := net.Dial("unix", instance.Socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.SetDeadline(time.Now().Add(storetest.Bound))
		if got, err := io.ReadAll(connection); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a refused connection got %q, %v; want nothing but its end", got, err)
		}
		connection.Close()
	}
	const slack = 10
	storetest.Eventually(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before+slack })

	instance.Uid--
	n.open(t, instance)
	if _, err := storetest.Dial(t, instance.Socket).Put(storetest.Context(t), ownKey, "v"); err != nil {
		t.Errorf("afterwards the instance itself: %v", err)
	}
}
