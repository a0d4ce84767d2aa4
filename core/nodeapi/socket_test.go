package nodeapi_test

import (
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
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
	if _, err := os.Lstat(a.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after the end: %v", err)
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
	a := serve(t)
	a.stop()
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.socket})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	server, err := nodeapi.New(a.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(a.socket); !os.IsNotExist(err) {
		t.Errorf("Close leaves the socket: %v", err)
	}
}

func TestNewFailsByName(t *testing.T) {
	a := serve(t)
	config := a.config()
	fails := func(parts ...string) {
		t.Helper()
		server, err := nodeapi.New(config)
		if err == nil {
			server.Close()
			t.Error("New succeeded")
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not say %q", err, part)
			}
		}
	}
	config.Socket = filepath.Join(a.dir, "precious")
	if err := os.WriteFile(config.Socket, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(config.Socket, "move it away")
	if content, err := os.ReadFile(config.Socket); err != nil || string(content) != "kept" {
		t.Errorf("what was in the way is now %q, %v", content, err)
	}
	config.Socket = filepath.Join(a.dir, strings.Repeat("x", 107))
	fails("bytes long", "107", "run directory")
	config.Socket = filepath.Join(a.dir, "missing", "node.sock")
	fails(config.Socket)
	config.Socket = filepath.Join(a.dir, "second.sock")
	config.Listen = a.server.Address()
	fails(config.Listen, "address already in use", "network.api_listen")
	if _, err := os.Lstat(config.Socket); !os.IsNotExist(err) {
		t.Errorf("a failed New leaves its socket: %v", err)
	}
}

func TestTCPIsServedOnlyIfAsked(t *testing.T) {
	a := serve(t)
	if host, port, err := net.SplitHostPort(a.server.Address()); err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("the address is %q", a.server.Address())
	}
	config := a.config()
	config.Socket, config.Listen = filepath.Join(a.dir, "second.sock"), ""
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
