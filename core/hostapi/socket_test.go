package hostapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/partialtest"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestOnlyTheRoleGetsIn connects as other users: the kernel refuses those who are not of the role's group, and the core those who are.
func TestOnlyTheRoleGetsIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	n := newNode(t, nil)
	n.membership.Set(membership.Status{State: membership.Home})
	remit := remitOf("role.1")
	remit.UID, remit.GID = roleUser, roleUser
	socket := n.open(remit)
	if got, want := modeAndOwner(t, socket), fmt.Sprintf("%o 0:%d", syscall.S_IFSOCK|0o660, roleUser); got != want {
		t.Errorf("the socket is %s, and should be %s", got, want)
	}
	if got, want := modeAndOwner(t, filepath.Dir(socket)), fmt.Sprintf("%o 0:%d", syscall.S_IFDIR|0o710, roleUser); got != want {
		t.Errorf("its directory is %s, and should be %s", got, want)
	}
	if got := modeAndOwner(t, filepath.Dir(filepath.Dir(socket))); got != fmt.Sprintf("%o 0:0", syscall.S_IFDIR|0o711) {
		t.Errorf("the directory of the directories is %s", got)
	}
	binary := executable(t, sharedDir(t))
	for name, test := range map[string]struct {
		uid, gid uint32
		want     string
	}{
		"the role":                       {roleUser, roleUser, "call: OK"},
		"another user":                   {otherUser, otherUser, "connect: dial unix " + socket + ": connect: permission denied"},
		"another user of the same group": {otherUser, roleUser, "call: Unavailable"},
		"the user with another group":    {roleUser, otherUser, "connect: dial unix " + socket + ": connect: permission denied"},
		"root":                           {0, 0, "call: Unavailable"},
	} {
		command := exec.CommandContext(t.Context(), binary)
		command.Dir = "/"
		command.Env = []string{dialVariable + "=" + socket, "GORACE=" + os.Getenv("GORACE")}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: test.uid, Gid: test.gid}}
		output, err := command.Output() // not what the runtime may say on its standard error
		if err != nil || string(output) != test.want {
			t.Errorf("%s: %q (%v), and should be %q", name, output, err, test.want)
		}
	}
}

// TestOpenAsOrdinaryUser: where all roles are of the core's user the group is left out of it.
func TestOpenAsOrdinaryUser(t *testing.T) {
	n := newNode(t, nil)
	remit := remitOf("role.1")
	remit.SharedUID = true
	socket := n.open(remit)
	own := fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	if got, want := modeAndOwner(t, socket), fmt.Sprintf("%o %s", syscall.S_IFSOCK|0o600, own); got != want {
		t.Errorf("the socket is %s, and should be %s", got, want)
	}
	if got, want := modeAndOwner(t, filepath.Dir(socket)), fmt.Sprintf("%o %s", syscall.S_IFDIR|0o700, own); got != want {
		t.Errorf("its directory is %s, and should be %s", got, want)
	}
}

// TestLeftovers: what an earlier core left is removed, and a socket that is open is not opened twice.
func TestLeftovers(t *testing.T) {
	n := newNode(t, nil)
	old := filepath.Join(n.runDir, "host", "old.1")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(old, "host.sock"), "", 0o600)
	socket := n.open(remitOf("old.1"))
	if socket != filepath.Join(old, "host.sock") {
		t.Errorf("the socket is %s", socket)
	}
	if _, _, err := n.server.Open(remitOf("old.1")); err == nil || !strings.Contains(err.Error(), "old.1") {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := net.Dial("unix", socket); err != nil {
		t.Errorf("after the second opening was refused: %v", err)
	}
	if _, err := hostapi.New(n.config()); err != nil {
		t.Fatal(err)
	}
	mustHaveOnly(t, filepath.Join(n.runDir, "host"))
}

func TestOpenRefuses(t *testing.T) {
	n := newNode(t, nil)
	for name, want := range map[string]string{
		"":                              "is not an instance name",
		"..":                            "is not an instance name",
		"../out.1":                      "is not an instance name",
		"a/b.1":                         "is not an instance name",
		strings.Repeat("a", 100) + ".1": "limit of 107",
	} {
		if _, _, err := n.server.Open(remitOf(name)); err == nil || !strings.HasPrefix(err.Error(), "hostapi: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	mustHaveOnly(t, filepath.Join(n.runDir, "host"))
	if _, err := hostapi.New(hostapi.Config{RunDir: "run"}); err == nil || !strings.Contains(err.Error(), "RunDir") || !strings.Contains(err.Error(), "Access") {
		t.Errorf("a configuration without anything: %v", err)
	}
}

// TestThousandInstances opens and closes as many sockets, each with a client that is in the middle of a stream, and has as many goroutines and
// descriptors as before.
func TestThousandInstances(t *testing.T) {
	n := newNode(t, nil)
	n.membership.Set(membership.Status{State: membership.Home})
	cycle := func(i int) {
		socket, closeSocket, err := n.server.Open(remitOf(fmt.Sprintf("role.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := hostv1.NewHostServiceClient(conn).WatchMembership(within(t), &hostv1.WatchMembershipRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		closeSocket()
		closeSocket() // once more does nothing
		if _, err := stream.Recv(); err == nil {
			t.Fatal("the stream outlives its socket")
		}
		_ = conn.Close()
	}
	for i := range 10 {
		cycle(i)
	}
	before, descriptors := goleak.IgnoreCurrent(), openDescriptors(t)
	for i := range 1000 {
		cycle(100 + i)
	}
	// VerifyNone alone waits for half a second.
	for ctx := within(t); goleak.Find(before) != nil && ctx.Err() == nil; {
	}
	goleak.VerifyNone(t, before)
	if got := openDescriptors(t); got > descriptors {
		t.Errorf("%d open descriptors before, %d after", descriptors, got)
	}
	mustHaveOnly(t, filepath.Join(n.runDir, "host"))
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestConnectionsAreBounded: an instance has so many connections and no more, and a place that it gives up it can take again. Connections that
// never say anything do not keep the socket from closing.
func TestConnectionsAreBounded(t *testing.T) {
	n := newNode(t, (*hostapi.Config).LetBeSilent)
	socket, closeSocket, err := n.server.Open(remitOf("role.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeSocket()
	connect := func() net.Conn {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// The server of HTTP/2 begins with its settings: who reads some was let in, who reads the end was not.
	admitted := func(conn net.Conn) bool {
		_, err := io.ReadFull(conn, make([]byte, 9))
		return err == nil
	}
	inside := make([]net.Conn, hostapi.MaxConnections)
	for i := range inside {
		if inside[i] = connect(); !admitted(inside[i]) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if admitted(connect()) {
		t.Errorf("connection %d is let in", len(inside)+1)
	}
	// The server sees the end of a connection some time after its client.
	_ = inside[0].Close()
	again := connect()
	for deadline := time.Now().Add(patience); !admitted(again); again = connect() {
		if time.Now().After(deadline) {
			t.Fatal("the place of a connection that ended is not free again")
		}
	}
	closeSocket()
	if _, err := io.ReadAll(again); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection after the close: %v", err)
	}
}

// TestRequestsAreBounded: a message that is larger than any file that may be replaced is refused, and the connection goes on.
func TestRequestsAreBounded(t *testing.T) {
	n := newNode(t, nil)
	path := filepath.Join(n.runDir, "file")
	client := n.client(remitOf("role.1", replaceFileGrant(path)))
	for size, code := range map[int]codes.Code{
		hostapi.MaxContent:     codes.OK,
		hostapi.MaxContent + 1: codes.InvalidArgument,
		4 * hostapi.MaxContent: codes.ResourceExhausted,
	} {
		_ = os.Remove(path)
		_, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, Content: make([]byte, size)})
		mustRefuse(t, err, code)
	}
	_ = os.Remove(path) // which is there if the size that is allowed came last
	mustHaveOnly(t, n.runDir, "host")
}

// TestStreamsAreBounded: a role that opens streams without end, whatever the server told it of the bound, is served no more than its share.
func TestStreamsAreBounded(t *testing.T) {
	n := newNode(t, nil)
	begin := dialling(t, n.open(remitOf("role.1")), hostv1.HostService_WatchNetwork_FullMethodName)
	if err := begin(hostapi.MaxStreams); err != nil {
		t.Error(err)
	}
	if err := begin(hostapi.MaxStreams + 1); err == nil || !strings.Contains(err.Error(), http2.ErrCodeRefusedStream.String()) {
		t.Errorf("the stream that is one too many: %v", err)
	}
}

// TestNothingIsCompressed: a compressed request is refused, although this program is linked with a compressor.
func TestNothingIsCompressed(t *testing.T) {
	n := newNode(t, nil)
	path := filepath.Join(n.runDir, "file")
	_, err := n.client(remitOf("role.1", replaceFileGrant(path))).ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, Content: make([]byte, 1000)}, grpc.UseCompressor(gzip.Name))
	mustRefuse(t, err, codes.Internal, "no compressed requests")
}

// dialling returns what makes calls on a connection of its own to a socket, none of which has all of its request.
func dialling(t *testing.T, socket, method string) (begin func(calls int) error) {
	return func(calls int) error {
		t.Helper()
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return partialtest.Calls(conn, method, calls, 1, 0)
	}
}

// panicking is a log that panics when a file was replaced.
type panicking struct{ hclog.Logger }

func (panicking) Info(string, ...any)         { panic("secret") }
func (p panicking) Named(string) hclog.Logger { return p }
func (p panicking) With(...any) hclog.Logger  { return p }

// TestPanicFailsOneCall: a panic ends one call, its value stays out of the log, and the next call is served.
func TestPanicFailsOneCall(t *testing.T) {
	var log bytes.Buffer
	n := newNode(t, func(config *hostapi.Config) {
		config.Log = panicking{hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Trace})}
	})
	path := filepath.Join(n.runDir, "file")
	client := n.client(remitOf("role.1", replaceFileGrant(path)))
	_, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, Content: []byte("content")})
	mustRefuse(t, err, codes.Internal, "log")
	if !strings.Contains(log.String(), "panicked") || strings.Contains(log.String(), "secret") {
		t.Errorf("the log of the panic: %s", log.String())
	}
	got, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
	if err != nil || string(got.GetContent()) != "content" {
		t.Errorf("the next call: %v (%v)", got, err)
	}
}

// TestNoContentInLog: files are other people's.
func TestNoContentInLog(t *testing.T) {
	var log bytes.Buffer
	n := newNode(t, func(config *hostapi.Config) {
		config.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Trace})
	})
	path := filepath.Join(n.runDir, "file")
	mustWrite(t, path, "old-secret", 0o600)
	client := n.client(remitOf("role.1", replaceFileGrant(path)))
	old, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []*hostv1.ReplaceFileRequest{
		{Path: path, ExpectedDigest: old.GetDigest(), Content: []byte("new-secret")},
		{Path: path, ExpectedDigest: old.GetDigest(), Content: []byte("new-secret")},
		{Path: path + "x", Content: []byte("new-secret")},
	} {
		_, _ = client.ReplaceFile(within(t), request)
	}
	if text := log.String(); !strings.Contains(text, "Replaced a file") || strings.Contains(text, "secret") {
		t.Errorf("the log: %s", text)
	}
}
