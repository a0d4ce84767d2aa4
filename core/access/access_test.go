package access_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const (
	ordinaryUser     = 65501 // as whom the tests run once more
	providerUID      = 65510
	otherProviderUID = 65511
	nodeID           = "reeve-00112233445566778899aabbccddeeff"
	patience         = 5 * time.Minute
)

var coreStart = time.Unix(1_700_000_000, 12345)

// TestAsOrdinaryUser runs every other test of the package once more, as a user that is not root: all instances then share its user ID.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is the run as an ordinary user")
	}
	dir := sharedDir(t)
	executable := filepath.Join(dir, "access.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(executable, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), executable, "-test.v", "-test.timeout=20m", "-test.skip=^TestAsOrdinaryUser$")
	command.Dir = dir
	command.Env = []string{"TMPDIR=/tmp", "GORACE=" + os.Getenv("GORACE")}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("as an ordinary user: %v\n%s", err, output)
	}
	if !strings.Contains(string(output), "--- PASS: TestSetByMembership") {
		t.Fatalf("the tests did not run as an ordinary user:\n%s", output)
	}
}

// sharedDir makes a directory with a short path that other users may pass through.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "acc")
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

// node is the part of a node around a room.
type node struct {
	t            *testing.T
	runDir       string
	instances    *event.Value[roles.Instances]
	capabilities *event.Value[roles.Capabilities]
	membership   *event.Value[membership.Status]
	room         *access.Room
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		t:            t,
		runDir:       sharedDir(t),
		instances:    new(event.Value[roles.Instances]),
		capabilities: new(event.Value[roles.Capabilities]),
		membership:   new(event.Value[membership.Status]),
	}
	n.room = access.New(access.Config{
		RunDir: n.runDir, CoreStart: coreStart,
		Instances: n.instances, Capabilities: n.capabilities, Membership: n.membership,
	})
	return n
}

// run runs the room until the test ends, or the returned function is called.
func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.room.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("Run: %v", err)
		}
	}
	n.t.Cleanup(stop)
	return stop
}

// provide makes a provider of the store known, with the instance and the connection of it.
func (n *node) provide(name string, uid uint32, conn grpc.ClientConnInterface) roles.Instance {
	provider := instance(name, &rolev1.RoleManifest{Provides: []string{roles.CapabilityConsensus}}, "")
	provider.Remit.UID = uid
	n.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {
		InstanceID: provider.Remit.InstanceID, Role: provider.Remit.Role, State: hostv1.InstanceState_INSTANCE_STATE_READY, Conn: conn,
	}})
	return provider
}

// instance is a running instance with the name "<role>.<counter>".
func instance(name string, manifest *rolev1.RoleManifest, granted string) roles.Instance {
	role, counter, _ := strings.Cut(name, ".")
	manifest.Name = role
	shared := os.Geteuid() != 0
	remit := &plugin.Remit{
		InstanceID: nodeID + "/" + role + "/" + counter, Name: name, Role: role, SharedUID: shared,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		Manifest: manifest, Grants: &clusterv1.RoleGrants{Role: role, ConsensusUser: granted},
	}
	if !shared {
		remit.UID, remit.GID = 65520+uint32(len(name)), 65520+uint32(len(name))
	}
	return roles.Instance{
		Status:  &clusterv1.InstanceStatus{Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY, InstanceId: remit.InstanceID},
		Remit:   remit,
		Process: &plugin.Process{PID: 4000 + len(name), Start: 99},
	}
}

// user is a running instance whose ConsensusUser, of the role's name, is declared and granted.
func user(name string) roles.Instance {
	role, _, _ := strings.Cut(name, ".")
	return instance(name, &rolev1.RoleManifest{ConsensusUser: role}, role)
}

func (n *node) await(what string, accept func(access.States) bool) access.States {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	states, err := n.room.States().Wait(ctx, accept)
	if err != nil {
		last, _ := n.room.States().Get()
		n.t.Fatalf("never came: %s; last: %v", what, last)
	}
	return states
}

func (n *node) socket(of roles.Instance) string {
	return filepath.Join(n.runDir, "access", of.Remit.Name, "consensus.sock")
}

// reasonOf is "open", or why the store is not open to the instance, or "" if there is no answer.
func reasonOf(states access.States, of roles.Instance) string {
	answer := states[of.Remit.InstanceID]
	switch {
	case answer == nil:
		return ""
	case answer.GetOpen() != nil:
		return "open"
	default:
		return strings.TrimPrefix(answer.GetUnavailable().GetReason().String(), "CONSENSUS_UNAVAILABLE_REASON_")
	}
}

func (n *node) awaitReason(of roles.Instance, want string) access.States {
	n.t.Helper()
	return n.await(of.Remit.Name+" is "+want, func(states access.States) bool { return reasonOf(states, of) == want })
}

// store is a provider of the consensus store that only keeps account, on a real connection.
type store struct {
	consensusv1.UnimplementedConsensusServiceServer
	// taken is the sets that were taken, in order.
	taken event.Value[[]*consensusv1.SetAccessRequest]
	// status is what WatchStore streams.
	status *event.Value[*consensusv1.StoreStatus]
	// opens is whether a set is reported open as soon as it is taken.
	opens bool
	// refuse, if not nil, is asked before a set is taken.
	refuse func() error
	// broken, once closed, ends the stream that is open, and only that one.
	broken  chan struct{}
	streams atomic.Int32
	server  *grpc.Server
	conn    *grpc.ClientConn
}

func newStore(t *testing.T, configure func(*store)) *store {
	t.Helper()
	s := &store{status: event.New(&consensusv1.StoreStatus{Formed: true}), opens: true, broken: make(chan struct{})}
	if configure != nil {
		configure(s)
	}
	listener, err := net.Listen("unix", filepath.Join(sharedDir(t), "plugin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer(grpc.WaitForHandlers(true))
	consensusv1.RegisterConsensusServiceServer(s.server, s)
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(listener) }()
	s.conn, err = grpc.NewClient("unix:"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.conn.Close()
		s.server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

func (s *store) SetAccess(_ context.Context, request *consensusv1.SetAccessRequest) (*consensusv1.SetAccessResponse, error) {
	if s.refuse != nil {
		if err := s.refuse(); err != nil {
			return nil, err
		}
	}
	taken, _ := s.taken.Get()
	if len(taken) > 0 && cmp.Compare(taken[len(taken)-1].GetNumber(), request.GetNumber()) > 0 {
		return nil, status.Error(codes.Aborted, "older than one already seen")
	}
	s.taken.Set(append(slices.Clone(taken), request))
	if s.opens {
		s.status.Set(reportOf(request, consensusv1.AccessState_ACCESS_STATE_OPEN, ""))
	}
	return &consensusv1.SetAccessResponse{}, nil
}

func (s *store) WatchStore(_ *consensusv1.WatchStoreRequest, stream grpc.ServerStreamingServer[consensusv1.WatchStoreResponse]) error {
	watcher, ctx, broken := s.status.Watch(), stream.Context(), s.broken
	if s.streams.Add(1) > 1 {
		broken = nil
	}
	for {
		select {
		case <-broken:
			return status.Error(codes.Unavailable, "gone")
		case <-ctx.Done():
		case <-watcher.Changed():
		}
		now, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&consensusv1.WatchStoreResponse{Status: now}); err != nil {
			return err
		}
	}
}

// reportOf is the status of a formed store that has all instances of the set in one state.
func reportOf(request *consensusv1.SetAccessRequest, state consensusv1.AccessState, reason string) *consensusv1.StoreStatus {
	report := &consensusv1.StoreStatus{Formed: true, Quorum: true, Voter: true, CoreStart: request.GetCoreStart(), AccessNumber: request.GetNumber()}
	for _, entry := range request.GetInstances() {
		report.Access = append(report.Access, &consensusv1.AccessStatus{InstanceId: entry.GetInstanceId(), State: state, Reason: reason})
	}
	return report
}

// awaitSet waits until the last set that was taken holds exactly these instances, and returns it.
func (s *store) awaitSet(t *testing.T, instances ...roles.Instance) *consensusv1.SetAccessRequest {
	t.Helper()
	want := make([]string, 0, len(instances))
	for _, instance := range instances {
		want = append(want, instance.Remit.InstanceID)
	}
	slices.Sort(want)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	taken, err := s.taken.Wait(ctx, func(taken []*consensusv1.SetAccessRequest) bool {
		return len(taken) > 0 && slices.Equal(idsOf(taken[len(taken)-1]), want)
	})
	if err != nil {
		last, _ := s.taken.Get()
		t.Fatalf("the set %v was never sent; sent: %v", want, last)
	}
	return taken[len(taken)-1]
}

func idsOf(request *consensusv1.SetAccessRequest) []string {
	ids := []string{}
	for _, entry := range request.GetInstances() {
		ids = append(ids, entry.GetInstanceId())
	}
	return ids
}

func home() membership.Status { return membership.Status{State: membership.Home, Reason: "test"} }

func mustNotExist(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
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
