package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// member is the store's member on a curator's node, as far as it takes snapshots.
type member struct {
	consensusv1.UnimplementedSnapshotServiceServer
	// cluster and recipient are what its manifest says in the place of what is so; empty: it says what is.
	cluster, recipient string
	// refuses is why it takes none, and breaks why it ends before the last byte.
	refuses, breaks error
	asked           atomic.Pointer[string]
	// records are what its rehearsals read; nil: it rehearses none.
	records func() map[string]string
	// may is asked before anything else; nil: it may. hold keeps it from sending the payload until it is closed; nil: nothing does.
	may  func() error
	hold chan struct{}
}

var snapshotPayload = bytes.Repeat([]byte("payload"), 100_000)

func (m *member) TakeSnapshot(request *consensusv1.TakeSnapshotRequest, stream grpc.ServerStreamingServer[consensusv1.TakeSnapshotResponse]) error {
	recipient := request.GetRecipient()
	m.asked.Store(&recipient)
	if m.refuses != nil {
		return m.refuses
	}
	if m.may != nil {
		if err := m.may(); err != nil {
			return err
		}
	}
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	manifest := snapshot.Manifest{
		ClusterID: clusterID, NodeID: "reeve-1", MemberID: "1", Time: time.Unix(1, 0), Revision: 7, ReeveVersion: "1", Compression: snapshot.Compression, Recipient: recipient,
		DatabaseSize: 1, DatabaseSHA256: fmt.Sprintf("%x", sha256.Sum256(nil)), PayloadSize: int64(len(snapshotPayload)), PayloadSHA256: fmt.Sprintf("%x", sha256.Sum256(snapshotPayload)),
	}
	if m.cluster != "" {
		manifest.ClusterID = m.cluster
	}
	if m.recipient != "" {
		manifest.Recipient = m.recipient
	}
	if request.GetRehearse() && m.records != nil {
		records := m.records()
		for key, value := range records {
			record := &consensusv1.SnapshotRecord{Key: []byte(key), Value: []byte(value)}
			if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Record{Record: record}}); err != nil {
				return err
			}
		}
		manifest.Rehearsal = &snapshot.Rehearsal{Keys: 5000, Records: int64(len(records))}
	}
	line, err := manifest.Marshal()
	if err != nil {
		return err
	}
	if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Manifest{Manifest: line}}); err != nil {
		return err
	}
	for rest := snapshotPayload; len(rest) > 0; {
		part := rest[:min(len(rest), 256<<10)]
		rest = rest[len(part):]
		if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Data{Data: part}}); err != nil {
			return err
		}
		if m.breaks != nil {
			return m.breaks
		}
	}
	return nil
}

// client serves the member.
func (m *member) client(t *testing.T) consensusv1.SnapshotServiceClient {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	consensusv1.RegisterSnapshotServiceServer(server, m)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	connection, err := grpc.NewClient("passthrough:///member", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		server.Stop()
		<-ended
	})
	return consensusv1.NewSnapshotServiceClient(connection)
}

// others is one member after another.
type others struct {
	present consensusv1.SnapshotServiceClient
}

func (o *others) TakeSnapshot(ctx context.Context, request *consensusv1.TakeSnapshotRequest, options ...grpc.CallOption) (grpc.ServerStreamingClient[consensusv1.TakeSnapshotResponse], error) {
	return o.present.TakeSnapshot(ctx, request, options...)
}

// received reads a stream, and returns the file that came.
func received[M interface{ GetData() []byte }](stream interface{ Recv() (M, error) }, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var file []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return file, nil
		}
		if err != nil {
			return file, err
		}
		file = append(file, part.GetData()...)
	}
}

// TestSnapshots holds that operators and owners get a snapshot that is sealed to the policy's recipient and signed by the cluster CA, that only owners get one that is not sealed, and that
// viewers get none.
func TestSnapshots(t *testing.T) {
	taking := new(member)
	c := newClusterOn(t, etcd, func(config *server.Config) { config.Snapshots = taking.client(t) })
	owner, ctx := c.asOwner(), t.Context()
	operator, viewer := c.addOperator("otto", roleOperator).client(), c.addOperator("vera", roleViewer).client()
	sealed := func(by clusterv1.ManagementServiceClient) ([]byte, error) {
		return received(by.StreamSnapshot(ctx, &clusterv1.StreamSnapshotRequest{}))
	}
	open := func(by clusterv1.ManagementServiceClient) ([]byte, error) {
		return received(by.StreamUnencryptedSnapshot(ctx, &clusterv1.StreamUnencryptedSnapshotRequest{}))
	}

	_, err := sealed(owner)
	wantCode(t, err, codes.FailedPrecondition, "the cluster knows no recovery key", "reeve policy set recovery-recipient=", "--unencrypted")
	if asked := taking.asked.Load(); asked != nil {
		t.Error("the member was asked for a snapshot that is sealed to nobody")
	}

	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	recipient := identity.Recipient().String()
	set := func(recipient string, isolation clusterv1.IsolationPolicy) (*clusterv1.ClusterPolicy, error) {
		response, err := owner.SetPolicy(ctx, &clusterv1.SetPolicyRequest{Policy: &clusterv1.ClusterPolicy{Isolation: isolation, RecoveryRecipient: recipient}})
		return response.GetPolicy(), err
	}
	_, err = set("age1somebody", clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT)
	wantCode(t, err, codes.InvalidArgument, "policy.recovery_recipient", "age1")
	_, err = set(identity.String(), clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT)
	wantCode(t, err, codes.InvalidArgument, "policy.recovery_recipient")
	if policy, err := set(recipient, clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT); err != nil || policy.GetRecoveryRecipient() != recipient || policy.GetGeneration() != 2 {
		t.Fatalf("%v, %v", policy, err)
	}
	// Who changes something else keeps it, and changes nothing by not naming it.
	if policy, err := set("", clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT); err != nil || policy.GetRecoveryRecipient() != recipient || policy.GetGeneration() != 2 {
		t.Errorf("%v, %v", policy, err)
	}
	if policy, err := set("", clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED); err != nil || policy.GetRecoveryRecipient() != recipient || policy.GetGeneration() != 3 {
		t.Errorf("%v, %v", policy, err)
	}

	check := func(file []byte, err error, recipient string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		from := bufio.NewReader(bytes.NewReader(file))
		header, err := snapshot.ReadHeader(from)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := io.ReadAll(header.Payload(from))
		if err != nil || !bytes.Equal(payload, snapshotPayload) {
			t.Errorf("a payload of %d bytes: %v", len(payload), err)
		}
		if asked := *taking.asked.Load(); header.Manifest.Recipient != recipient || asked != recipient {
			t.Errorf("it is sealed to %q, and the member was asked for %q; want %q", header.Manifest.Recipient, asked, recipient)
		}
		if !bytes.Equal(header.Authority.Raw, c.ca[0]) {
			t.Error("it is signed by another CA than the cluster's")
		}
	}
	file, err := sealed(operator)
	check(file, err, recipient)
	file, err = sealed(owner)
	check(file, err, recipient)
	file, err = open(owner)
	check(file, err, "")
	_, err = open(operator)
	wantCode(t, err, codes.PermissionDenied, "operator otto")
	_, err = sealed(viewer)
	wantCode(t, err, codes.PermissionDenied, "operator vera")
	_, err = open(viewer)
	wantCode(t, err, codes.PermissionDenied, "operator vera")

	var entries []string
	log, err := owner.ListAudit(ctx, &clusterv1.ListAuditRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range log.GetEntries() {
		if contains(entry.GetRpc(), "Snapshot") {
			entries = append(entries, fmt.Sprintf("%s by %s: %s", entry.GetRpc(), entry.GetCaller(), entry.GetCode()))
		}
	}
	want := []string{
		"StreamUnencryptedSnapshot by operator vera: PermissionDenied", "StreamSnapshot by operator vera: PermissionDenied", "StreamUnencryptedSnapshot by operator otto: PermissionDenied",
		"StreamUnencryptedSnapshot by owner: OK", "StreamSnapshot by owner: OK", "StreamSnapshot by operator otto: OK", "StreamSnapshot by owner: FailedPrecondition",
	}
	if fmt.Sprint(entries) != fmt.Sprint(want) {
		t.Errorf("the audit log has %q, want %q", entries, want)
	}
}

// TestSnapshotsThatFail holds that nothing is signed that was not asked for, and that it is said why there is no snapshot.
func TestSnapshotsThatFail(t *testing.T) {
	taking := new(others)
	c := newClusterOn(t, etcd, func(config *server.Config) { config.Snapshots = taking })
	for name, test := range map[string]struct {
		member *member
		code   codes.Code
		text   string
	}{
		"another cluster":       {&member{cluster: "c-4567"}, codes.Internal, "another snapshot than it was asked for"},
		"another recipient":     {&member{recipient: "age1somebody"}, codes.Internal, "another snapshot than it was asked for"},
		"another one under way": {&member{refuses: status.Error(codes.ResourceExhausted, "another snapshot is being taken")}, codes.ResourceExhausted, "another snapshot is being taken"},
		"a member that cannot":  {&member{refuses: status.Error(codes.Unimplemented, "unknown service")}, codes.FailedPrecondition, "upgrade it"},
		"it ends in the middle": {&member{breaks: status.Error(codes.Unavailable, "the disk")}, codes.Unavailable, "the disk"},
	} {
		taking.present = test.member.client(t)
		file, err := received(c.asOwner().StreamUnencryptedSnapshot(t.Context(), &clusterv1.StreamUnencryptedSnapshotRequest{}))
		if status.Code(err) != test.code || !contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: %v", name, err)
		}
		if test.member.breaks == nil && len(file) > 0 {
			t.Errorf("%s: %d bytes came", name, len(file))
		}
	}
}
