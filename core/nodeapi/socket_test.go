package nodeapi_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/peercred"
)

func TestTheSocketIsTheCoresAlone(t *testing.T) {
	a := serve(t)
	info, err := os.Lstat(a.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket's mode is %v", info.Mode())
	}
	a.stop()
	if err := a.shared.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(a.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after the end: %v", err)
	}
}

// Who asks while one server has ended and the next has not begun is answered by the next.
func TestTheSocketOutlivesItsServer(t *testing.T) {
	a := serve(t)
	a.stop()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatalf("between two servers: %v", err)
	}
	once := make(chan net.Conn, 1)
	once <- conn
	between, err := grpc.NewClient("passthrough:///between", grpc.WithTransportCredentials(peercred.Credentials(nil)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case made := <-once:
				return made, nil
			default:
				return nil, errors.New("the connection that was made between two servers was not served")
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	a.run()
	if _, err := nodev1.NewNodeServiceClient(between).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
}

func TestAnotherUserCannotUseTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	a := serve(t)
	// Other users cannot execute the test binary where the go command put it.
	binary := filepath.Join(a.dir, "visitor")
	copyFile(t, binary)
	as := func(uid uint32) string {
		t.Helper()
		command := exec.Command(binary, visitor, a.socket)
		command.Dir = "/"
		command.Env = []string{"PATH=/usr/bin", "GORACE=" + os.Getenv("GORACE")}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("as user %d: %v: %s", uid, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	if got := as(0); got != "served" {
		t.Errorf("root is %s", got)
	}
	if got := as(65534); got != "refused" {
		t.Errorf("another user is %s", got)
	}
	if err := os.Chmod(a.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := as(65534); got != "closed" {
		t.Errorf("another user is %s where the file lets everybody in", got)
	}
	if got := as(0); got != "served" {
		t.Errorf("root is %s afterwards", got)
	}
}

func copyFile(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestALeftOverSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "node.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	socket, err := nodeapi.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("Close leaves the socket: %v", err)
	}
}

func TestListenFailsByName(t *testing.T) {
	dir := shortDir(t)
	fails := func(path string, parts ...string) {
		t.Helper()
		socket, err := nodeapi.Listen(path)
		if err == nil {
			socket.Close()
			t.Error("Listen succeeded")
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not say %q", err, part)
			}
		}
	}
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(precious, precious, "move it away")
	if content, err := os.ReadFile(precious); err != nil || string(content) != "kept" {
		t.Errorf("what was in the way is now %q, %v", content, err)
	}
	fails(filepath.Join(dir, strings.Repeat("x", 107)), "bytes long", "107", "run directory")
	missing := filepath.Join(dir, "missing", "node.sock")
	fails(missing, missing)
}

func TestNewFailsByName(t *testing.T) {
	a := serve(t)
	config := a.config()
	config.Listen = a.server.Address()
	server, err := nodeapi.New(config)
	if err == nil {
		server.Close()
		t.Fatal("New succeeded on an address that is in use")
	}
	for _, part := range []string{config.Listen, "address already in use", "network.api_listen"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not say %q", err, part)
		}
	}
	// The server that is there is none the worse for it.
	if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
}

func TestTCPIsServedOnlyIfAsked(t *testing.T) {
	a := serve(t)
	if host, port, err := net.SplitHostPort(a.server.Address()); err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("the address is %q", a.server.Address())
	}
	config := a.config()
	config.Socket, config.Listen = listen(t, filepath.Join(a.dir, "second.sock")), ""
	server, err := nodeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if server.Address() != "" {
		t.Errorf("the address is %q", server.Address())
	}
}

func TestAPanicStaysInItsCall(t *testing.T) {
	a := serve(t)
	a.panics()
	stream, err := a.client().ImportPlugin(a.context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.CloseAndRecv()
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "a secret") {
		t.Errorf("a panic is answered with %v", err)
	}
	if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// A socket that somebody removed is made again, and the server that runs serves it. Calls that are on their way go on.
func TestTheSocketIsMended(t *testing.T) {
	a := serve(t)
	if mended, err := a.shared.Mend(); mended || err != nil {
		t.Errorf("it was there: %t, %v", mended, err)
	}
	dial := func() nodev1.NodeServiceClient {
		t.Helper()
		conn, err := grpc.NewClient("unix:"+a.socket, grpc.WithTransportCredentials(peercred.Credentials(nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return nodev1.NewNodeServiceClient(conn)
	}
	before, err := dial().WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
	if err == nil {
		_, err = before.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := os.Remove(a.socket); err != nil {
			t.Fatal(err)
		}
		if mended, err := a.shared.Mend(); !mended || err != nil {
			t.Fatalf("%t, %v", mended, err)
		}
		if info, err := os.Lstat(a.socket); err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if _, err := dial().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
			t.Errorf("on the new socket: %v", err)
		}
	}
	a.stop()
	// The next server has the new one.
	a.run()
	if _, err := dial().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
	a.stop()
	if err := a.shared.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(a.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after the end: %v", err)
	}
}
