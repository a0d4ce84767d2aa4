package archive_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/archive"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// patience bounds waits for what must happen; nothing waits for it when all is well.
const patience = 2 * time.Minute

// rig is a curator with one snapshot, in a cluster of two nodes.
type rig struct {
	t         *testing.T
	cluster   *roletest.Cluster
	curator   *role.Host
	snapshots event.Value[*cache.Snapshot]
	path      string
	file      []byte
}

const name = "20261128T180000Z-1"

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, cluster: roletest.NewCluster(t, 2), path: filepath.Join(t.TempDir(), "snapshots")}
	r.curator = r.cluster.Host(0).Instance(t, "curator")
	if err := os.Mkdir(r.path, 0o700); err != nil {
		t.Fatal(err)
	}
	node := r.cluster.Host(0).NodeID()
	payload := bytes.Repeat([]byte("payload"), 100_000) // some messages
	directory, header := scheduled.OpenDirectory(r.path, node), snapshottest.Rehearsed(t, payload)
	asked := timestamppb.New(time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC))
	if err := directory.Write(&clusterv1.SnapshotTask{Number: 1, NodeId: node, Asked: asked}, header, bytes.NewReader(payload)); err != nil {
		t.Fatal(err)
	}
	r.file = append(header.Marshal(), payload...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		archive.Run(ctx, archive.Config{Listener: r.curator, Directory: directory, Snapshots: &r.snapshots, NodeID: node, Log: r.curator.Logger()})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

// assign tells the curator which roles its node has.
func (r *rig) assign(roles ...string) {
	node := &clusterv1.NodeRecord{Id: r.curator.NodeID()}
	for _, one := range roles {
		node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: one})
	}
	r.snapshots.Set(&cache.Snapshot{State: &store.State{Nodes: map[string]*clusterv1.NodeRecord{node.Id: node}}})
}

// instance is a role on a node that knows where the curator is, and that the curator knows.
func (r *rig) instance(on *roletest.Host, as string) *role.Host {
	r.t.Helper()
	instance := on.Instance(r.t, as)
	roletest.AwaitEndpoint(r.t, instance, r.cluster.Host(0), "curator", archivev1.Endpoint)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.curator.Directory().Wait(ctx, func(now *hostv1.Directory) bool {
		return slices.ContainsFunc(now.GetNodes(), func(n *hostv1.DirectoryNode) bool {
			return n.GetNodeId() == instance.NodeID() && slices.Contains(n.GetAssigned().GetRoles(), as)
		})
	}); err != nil {
		r.t.Fatal(err)
	}
	return instance
}

// dial connects a role on a node to the curator.
func (r *rig) dial(on *roletest.Host, as string) archivev1.ArchiveServiceClient {
	r.t.Helper()
	return archivev1.NewArchiveServiceClient(r.connect(r.instance(on, as)))
}

func (r *rig) connect(instance *role.Host) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///curator", grpc.WithTransportCredentials(role.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return instance.Dial(ctx, "curator", r.curator.NodeID(), archivev1.Endpoint)
		}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestConnections holds that the oldest connection goes where there are too many.
func TestConnections(t *testing.T) {
	r := newRig(t)
	r.assign("curator", "archive")
	instance := r.instance(r.cluster.Host(0), "archive")
	var first *grpc.ClientConn
	for range 5 {
		conn := r.connect(instance)
		if _, err := archivev1.NewArchiveServiceClient(conn).ListSnapshots(t.Context(), &archivev1.ListSnapshotsRequest{}); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = conn
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !first.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the first one of five connections is still open")
	}
}

// get reads a snapshot from an offset on.
func get(t *testing.T, from archivev1.ArchiveServiceClient, name string, offset int64) ([]byte, error) {
	t.Helper()
	stream, err := from.GetSnapshot(t.Context(), &archivev1.GetSnapshotRequest{Name: name, Offset: offset})
	if err != nil {
		return nil, err
	}
	var read []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return read, nil
		}
		if err != nil {
			return read, err
		}
		read = append(read, part.GetData()...)
	}
}

// TestSnapshotsAreServed holds that the role archive of the node is given whole files, from where it says, and nothing that is no snapshot.
func TestSnapshotsAreServed(t *testing.T) {
	r := newRig(t)
	r.assign("curator", "archive")
	client := r.dial(r.cluster.Host(0), "archive")
	listed, err := client.ListSnapshots(t.Context(), &archivev1.ListSnapshotsRequest{})
	if err != nil || len(listed.GetSnapshots()) != 1 || listed.GetSnapshots()[0].GetName() != name || listed.GetSnapshots()[0].GetBytes() != int64(len(r.file)) {
		t.Errorf("%v, %v", listed, err)
	}
	for _, offset := range []int{0, 1, 300_000, len(r.file) - 1, len(r.file)} {
		if got, err := get(t, client, name, int64(offset)); err != nil || !bytes.Equal(got, r.file[offset:]) {
			t.Errorf("from %d: %d bytes of %d, %v", offset, len(got), len(r.file)-offset, err)
		}
	}
	for offset, code := range map[int64]codes.Code{-1: codes.OutOfRange, int64(len(r.file)) + 1: codes.OutOfRange} {
		if _, err := get(t, client, name, offset); status.Code(err) != code {
			t.Errorf("from %d: %v", offset, err)
		}
	}
	for _, none := range []string{"", "../snapshots/" + name, "20261128T180000Z-2", name + ".snapshot"} {
		if _, err := get(t, client, none, 0); status.Code(err) != codes.NotFound {
			t.Errorf("%q: %v", none, err)
		}
	}
	if err := os.Truncate(filepath.Join(r.path, name+".snapshot"), 2000); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, client, name, 0); status.Code(err) != codes.DataLoss {
		t.Errorf("a file that was cut: %v", err)
	}
}

// TestNobodyElse holds that other roles, and the role archive of another node, are given nothing.
func TestNobodyElse(t *testing.T) {
	r := newRig(t)
	r.assign("curator", "archive")
	for _, other := range []struct {
		host int
		role string
		code codes.Code
	}{{0, "hostsfile", codes.Unavailable}, {1, "curator", codes.Unavailable}, {1, "archive", codes.PermissionDenied}} {
		client := r.dial(r.cluster.Host(other.host), other.role)
		if _, err := client.ListSnapshots(t.Context(), &archivev1.ListSnapshotsRequest{}); status.Code(err) != other.code {
			t.Errorf("%s on host %d lists: %v", other.role, other.host, err)
		}
		if got, err := get(t, client, name, 0); status.Code(err) != other.code || len(got) > 0 {
			t.Errorf("%s on host %d gets: %d bytes, %v", other.role, other.host, len(got), err)
		}
	}
}

// TestWithoutIPv4 has the tests of what is served on a machine without 127.0.0.1.
func TestWithoutIPv4(t *testing.T) {
	for _, program := range []string{"unshare", "ip"} {
		if _, err := exec.LookPath(program); os.Getuid() != 0 || err != nil {
			t.Skip("needs root, unshare and ip: a network namespace is made")
		}
	}
	command := exec.Command("unshare", "-n", "sh", "-euc", `ip link set lo up; ip address delete 127.0.0.1/8 dev lo; exec "$@"`, "sh",
		os.Args[0], "-test.v", "-test.run=^(TestSnapshotsAreServed|TestOnlyWhileAssigned)$")
	if output, err := command.CombinedOutput(); err != nil || strings.Count(string(output), "\n--- PASS: ") != 2 {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestOnlyWhileAssigned holds that the curator listens only while its node has the role.
func TestOnlyWhileAssigned(t *testing.T) {
	r := newRig(t)
	seen := r.cluster.Host(1).Instance(t, "looker")
	serves := func(now *hostv1.Directory) bool {
		for _, node := range now.GetNodes() {
			for _, one := range node.GetRoles() {
				for _, endpoint := range one.GetEndpoints() {
					if one.GetRole() == "curator" && endpoint.GetName() == archivev1.Endpoint {
						if at, err := netip.ParseAddrPort(endpoint.GetAddress()); err != nil || !at.Addr().IsLoopback() {
							t.Errorf("it is served at %s, where other machines may get to it", endpoint.GetAddress())
						}
						return true
					}
				}
			}
		}
		return false
	}
	r.cluster.Host(0).Network.Set([]string{"127.0.0.2"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.assign("curator")
	r.curator.Ready()
	if now, err := seen.Directory().Wait(ctx, func(now *hostv1.Directory) bool { return len(now.GetNodes()[0].GetRoles()) > 0 }); err != nil || serves(now) {
		t.Errorf("without the role: %v, %v", now, err)
	}
	r.assign("curator", "archive")
	if _, err := seen.Directory().Wait(ctx, serves); err != nil {
		t.Errorf("with the role: %v", err)
	}
	r.assign("curator")
	if _, err := seen.Directory().Wait(ctx, func(now *hostv1.Directory) bool { return !serves(now) }); err != nil {
		t.Errorf("when the role is gone: %v", err)
	}
}
