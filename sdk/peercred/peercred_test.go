package peercred_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/peercred"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// self is who this process is, as the kernel says it.
func self() peercred.Peer {
	return peercred.Peer{PID: os.Getpid(), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
}

func refuse(peercred.Peer) error { return errors.New("not you") }

func admit(t *testing.T) func(peercred.Peer) error {
	return func(peer peercred.Peer) error {
		if peer != self() {
			t.Errorf("the peer is %+v, want %+v", peer, self())
		}
		return nil
	}
}

// serve serves gRPC's health service on a Unix socket; seen gets the peer of each call.
func serve(t *testing.T, transport credentials.TransportCredentials) (socket string, seen <-chan credentials.AuthInfo) {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "pc")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(directory, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan credentials.AuthInfo, 1)
	server := grpc.NewServer(grpc.Creds(transport), grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			caller, _ := peer.FromContext(ctx)
			peers <- caller.AuthInfo
			return handler(ctx, request)
		}))
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(directory)
	})
	return socket, peers
}

func call(t *testing.T, socket string, transport credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

func TestCredentials(t *testing.T) {
	socket, seen := serve(t, peercred.Credentials(admit(t)))
	if err := call(t, socket, peercred.Credentials(admit(t))); err != nil {
		t.Fatal(err)
	}
	info, ok := (<-seen).(peercred.Info)
	if !ok || info.Peer != self() || info.AuthType() != "peercred" || info.SecurityLevel != credentials.PrivacyAndIntegrity {
		t.Errorf("the call came with %+v", info)
	}
	if err := call(t, socket, peercred.Credentials(nil).Clone()); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	t.Run("by the client", func(t *testing.T) {
		socket, _ := serve(t, peercred.Credentials(nil))
		if err := call(t, socket, peercred.Credentials(refuse)); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
		if err := call(t, socket, peercred.Credentials(refuse).Clone()); status.Code(err) != codes.Unavailable {
			t.Errorf("a clone: got %v", err)
		}
	})
	t.Run("by the server", func(t *testing.T) {
		socket, seen := serve(t, peercred.Credentials(refuse))
		if err := call(t, socket, peercred.Credentials(nil)); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
		select {
		case info := <-seen:
			t.Errorf("a call of %+v was handled", info)
		default:
		}
	})
}

func TestNotUnix(t *testing.T) {
	one, other := net.Pipe()
	defer func() { _ = one.Close() }()
	defer func() { _ = other.Close() }()
	if _, err := peercred.Of(one); !errors.Is(err, peercred.ErrNotUnix) {
		t.Errorf("got %v", err)
	}
	if _, _, err := peercred.Credentials(nil).ServerHandshake(one); !errors.Is(err, peercred.ErrNotUnix) {
		t.Errorf("got %v", err)
	}
}

// A peer counts as alive as long as its process is, and not when only the connection is left of it.
func TestCheckAlive(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	child := exec.Command(os.Args[0], "-test.run=^TestConnects$")
	child.Env = append(os.Environ(), connectTo+"="+socket)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	conn := accepted.(*net.UnixConn)
	if err := peercred.CheckAlive(conn); err != nil {
		t.Errorf("while it lives: %v", err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	err = peercred.CheckAlive(conn)
	if !tellsPeer(t, conn) {
		if err != nil {
			t.Errorf("on a kernel that does not tell: %v", err)
		}
		t.Skip("cannot run in full: this kernel does not tell whether a peer lives (SO_PEERPIDFD, Linux 6.5)")
	}
	if !errors.Is(err, peercred.ErrEnded) {
		t.Errorf("after it has ended: %v", err)
	}
}

// tellsPeer asks the kernel itself whether it tells of a peer's process, so that a check that finds nothing is not taken for a kernel that cannot.
func tellsPeer(t *testing.T, conn *net.UnixConn) bool {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var option error
	if err := raw.Control(func(fd uintptr) {
		pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if option = err; err == nil {
			_ = unix.Close(pidfd)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return !errors.Is(option, unix.ENOPROTOOPT)
}

// connectTo is the variable that names the socket to which TestConnects connects.
const connectTo = "PEERCRED_TEST_CONNECT"

// TestConnects is the process of TestCheckAlive: it connects, and ends when its standard input does.
func TestConnects(t *testing.T) {
	socket := os.Getenv(connectTo)
	if socket == "" {
		return
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = conn.Close()
}
