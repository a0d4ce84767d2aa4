package hostapi_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// The reconciler opens host sockets through this interface of its own.
var _ roles.HostSockets = (*hostapi.Server)(nil)

const (
	ordinaryUser = 65502 // as whom the tests run once more
	roleUser     = 65530
	otherUser    = 65531
	nodeID       = "reeve-00112233445566778899aabbccddeeff"
	patience     = 5 * time.Minute

	// dialVariable makes the test's executable connect to a host socket and say on its standard output what came of it.
	dialVariable = "HOSTAPI_TEST_DIAL"
)

func TestMain(m *testing.M) {
	if path, ok := os.LookupEnv(dialVariable); ok {
		fmt.Print(dial(path))
		return
	}
	if _, ok := os.LookupEnv(peerVariable); ok {
		peer()
		return
	}
	hostapi.AwaitLateClients()
	leaktest.VerifyTestMain(m)
}

// dial calls one RPC on a host socket and returns "OK", or which step failed how.
func dial(path string) string {
	probe, err := net.Dial("unix", path)
	if err != nil {
		return "connect: " + err.Error()
	}
	_ = probe.Close()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := hostv1.NewHostServiceClient(conn).WatchMembership(ctx, &hostv1.WatchMembershipRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return "call: " + status.Code(err).String()
}

// executable copies the test's executable to where another user may run it.
func executable(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "hostapi.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAsOrdinaryUser runs other tests of the package once more, as a user that is not root.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is the run as an ordinary user")
	}
	dir := sharedDir(t)
	command := exec.CommandContext(t.Context(), executable(t, dir), "-test.v", "-test.timeout=20m", "-test.skip=^TestAsOrdinaryUser$", "-test.run="+ordinaryTests)
	command.Dir = dir
	command.Env = []string{"TMPDIR=/tmp", "GORACE=" + os.Getenv("GORACE")}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("as an ordinary user: %v\n%s", err, output)
	}
	if !strings.Contains(string(output), "--- PASS: TestEveryRPC") {
		t.Fatalf("the tests did not run as an ordinary user:\n%s", output)
	}
}

// sharedDir makes a directory with a short path that other users may pass through.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "host")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// node is the part of a node around a server.
type node struct {
	t          *testing.T
	runDir     string
	membership *event.Value[membership.Status]
	directory  *event.Value[*hostv1.Directory]
	network    *event.Value[[]string]
	peers      *event.Value[[]string]
	curators   *event.Value[[]string]
	operators  *event.Value[*hostv1.Operators]
	access     *event.Value[access.States]
	identity   *event.Value[*identity.Identity]
	issuer     *issuer
	server     *hostapi.Server
}

func newNode(t *testing.T, configure func(*hostapi.Config)) *node {
	t.Helper()
	n := &node{
		t:          t,
		runDir:     sharedDir(t),
		membership: new(event.Value[membership.Status]),
		directory:  new(event.Value[*hostv1.Directory]),
		network:    new(event.Value[[]string]),
		peers:      new(event.Value[[]string]),
		curators:   new(event.Value[[]string]),
		operators:  new(event.Value[*hostv1.Operators]),
		access:     new(event.Value[access.States]),
		identity:   new(event.Value[*identity.Identity]),
		issuer:     newIssuer(t),
	}
	config := n.config()
	if configure != nil {
		configure(&config)
	}
	server, err := hostapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	n.server = server
	return n
}

// config is what another server of the node would need.
func (n *node) config() hostapi.Config {
	return hostapi.Config{
		RunDir: n.runDir, Membership: n.membership, Directory: n.directory, Network: n.network, Peers: n.peers, Curators: n.curators, Operators: n.operators, Access: n.access, Identity: n.identity, Issuer: n.issuer,
	}
}

// remitOf is the remit of an instance with the name "<role>.<counter>", of the user and the process group that run the test.
func remitOf(name string, grants ...*rolev1.Grant) *plugin.Remit {
	role, counter, _ := strings.Cut(name, ".")
	remit := &plugin.Remit{
		InstanceID: nodeID + "/" + role + "/" + counter, Name: name, Role: role,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), SharedUID: os.Geteuid() != 0,
		Manifest: &rolev1.RoleManifest{Name: role}, Grants: &clusterv1.RoleGrants{Role: role, Grants: grants},
	}
	remit.SetProcess(processOf(syscall.Getpgrp()))
	return remit
}

func replaceFileGrant(path string) *rolev1.Grant {
	return &rolev1.Grant{Name: "replace-file", Parameters: map[string]string{"path": path}}
}

// open opens the socket of an instance for as long as the test runs.
func (n *node) open(remit *plugin.Remit) (socket string) {
	n.t.Helper()
	socket, closeSocket, err := n.server.Open(remit)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(closeSocket)
	return socket
}

// client is a client on the socket of an instance, which is opened for it.
func (n *node) client(remit *plugin.Remit) hostv1.HostServiceClient {
	n.t.Helper()
	return hostv1.NewHostServiceClient(connect(n.t, n.open(remit)))
}

func connect(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// within is a context that ends a test that waits for what never comes.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustRefuse checks that a call failed with the code and a sentence that has these parts.
func mustRefuse(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("the call ends with %v, and should with %v: %v", status.Code(err), code, err)
		return
	}
	if err == nil {
		return
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("the refusal does not speak of %q: %q", part, status.Convert(err).Message())
		}
	}
}

func mustWrite(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	err := os.WriteFile(path, []byte(content), mode)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustHold(t testing.TB, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %.100q (%v), and should %.100q", path, got, err, want)
	}
}

func modeAndOwner(t *testing.T, path string) string {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%o %d:%d", stat.Mode, stat.Uid, stat.Gid)
}

// mustHaveOnly checks that a directory holds these names and nothing else, such as what a replacement may leave.
func mustHaveOnly(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s holds %v, and should %v", dir, got, names)
	}
}
