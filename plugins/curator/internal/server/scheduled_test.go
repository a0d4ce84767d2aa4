package server_test

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// TestScheduledSnapshots holds that the first snapshot is taken at once and the next ones when they are due, that they are signed and complete, and that only so many are kept.
func TestScheduledSnapshots(t *testing.T) {
	s := newSchedule(t)
	wantCode(t, s.set(time.Hour, 2, ""), codes.FailedPrecondition, "reeve policy set recovery-recipient=")
	for _, wrong := range []error{s.set(time.Minute, 2, s.recipient), s.set(time.Hour+time.Second, 2, s.recipient), s.set(time.Hour, 0, s.recipient), s.set(time.Hour, 101, s.recipient), s.set(-time.Hour, 2, s.recipient)} {
		wantCode(t, wrong, codes.InvalidArgument)
	}
	if err := s.set(time.Hour, 2, s.recipient); err != nil {
		t.Fatal(err)
	}
	set := time.Unix(0, s.clock.Load())
	kept := s.ended(1)
	newest := kept.GetSnapshots()[0]
	s.published(map[string]string{
		snapshot.ValueInterval: "1h0m0s", snapshot.ValueAsked: newest.GetTask().GetAsked().AsTime().Format(time.RFC3339), snapshot.ValueRevision: strconv.FormatInt(newest.GetRevision(), 10),
	})
	if kept.GetNodeId() != s.id || kept.GetFailure() != "" || len(kept.GetSnapshots()) != 1 || kept.GetSnapshots()[0].GetKeys() != 5000 {
		t.Fatalf("%v", kept)
	}
	name := kept.GetSnapshots()[0].GetName()
	get := func(by clusterv1.ManagementServiceClient, name string) ([]byte, error) {
		return received(by.GetSnapshot(t.Context(), &clusterv1.GetSnapshotRequest{Name: name}))
	}
	file, err := get(s.owner, name)
	if err != nil {
		t.Fatal(err)
	}
	header, err := snapshot.ReadHeader(bufio.NewReader(bytes.NewReader(file)))
	if err != nil || int64(len(file)) != header.Size() || header.Manifest.Recipient != s.recipient || header.Manifest.Rehearsal == nil || !bytes.HasSuffix(file, snapshotPayload) {
		t.Errorf("%d bytes, %v, %+v", len(file), err, header)
	}
	if info, err := os.Stat(filepath.Join(s.directory, "snapshots", name+".snapshot")); err != nil || info.Mode() != 0o600 || info.Size() != int64(len(file)) {
		t.Errorf("%v, %v", info, err)
	}
	_, err = get(s.asOwner(), name)
	wantCode(t, err, codes.FailedPrecondition, "is on node "+s.id)
	for _, none := range []string{"", "other", "../snapshots/" + name, name + ".snapshot"} {
		_, err = get(s.owner, none)
		wantCode(t, err, codes.NotFound, "reeve store snapshot list")
	}
	s.pass(59 * time.Minute)
	if s.pass(time.Minute); len(s.ended(2).GetSnapshots()) != 2 {
		t.Error("the first one is gone")
	}
	s.pass(time.Hour)
	if kept := s.ended(3).GetSnapshots(); len(kept) != 2 || kept[0].GetTask().GetNumber() != 3 || kept[1].GetTask().GetNumber() != 2 {
		t.Errorf("kept: %v", kept)
	}
	// Another recipient is no other schedule.
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	later := time.Unix(0, s.clock.Load())
	for _, c := range []struct {
		keep uint32
		want time.Time
	}{{2, set}, {3, later}} {
		if err := s.set(time.Hour, c.keep, other.Recipient().String()); err != nil {
			t.Fatal(err)
		}
		got, err := s.owner.GetPolicy(t.Context(), &clusterv1.GetPolicyRequest{})
		if err != nil || !got.GetPolicy().GetSnapshotsSince().AsTime().Equal(c.want) {
			t.Errorf("kept %d: %v, %v, want it to be since %s", c.keep, got, err, c.want)
		}
	}
}

// TestBadScheduledSnapshots holds that what is not rehearsed, not complete or without records is never called good, and that people are told.
func TestBadScheduledSnapshots(t *testing.T) {
	s := newSchedule(t)
	if err := s.set(time.Hour, 2, s.recipient); err != nil {
		t.Fatal(err)
	}
	first := s.ended(1).GetSnapshots()[0]
	good := first.GetName()
	s.taker.ready()
	count := func(failures, kept float64, newest *clusterv1.StoredSnapshot) {
		t.Helper()
		values := scrape(t, s.counted.Write)
		for name, want := range map[string]float64{
			"curator_snapshot_failures_total": failures, "curator_snapshots": kept, "curator_snapshot_good_seconds": float64(newest.GetTask().GetAsked().GetSeconds()),
		} {
			if values[name] != want {
				t.Errorf("%s is %v, want %v", name, values[name], want)
			}
		}
	}
	count(0, 1, first)
	number := uint64(1)
	fail := func(after time.Duration, with *member, reason string) {
		t.Helper()
		s.member.present = with.client(t)
		number++
		s.pass(after)
		if kept := s.ended(number); !contains(kept.GetFailure(), reason) || len(kept.GetSnapshots()) != 1 || kept.GetSnapshots()[0].GetName() != good {
			t.Errorf("%s: %v", reason, kept)
		}
		s.taker.degraded("has failed", reason)
	}
	fail(time.Hour, new(member), "has not rehearsed it")
	count(1, 1, first)
	// One that failed its rehearsal has another reason, which makes another event.
	fail(10*time.Minute, &member{refuses: status.Error(codes.DataLoss, "the rehearsal found 7 keys of 8")}, "the rehearsal found 7 keys of 8")
	count(2, 1, first)
	without := s.good()
	all := without.records
	without.records = func() map[string]string {
		records := all()
		delete(records, "cluster")
		return records
	}
	s.member.present = nil
	number++
	s.member.present = without.client(t)
	s.pass(time.Hour)
	if kept := s.ended(number); !contains(kept.GetFailure(), "no record cluster") {
		t.Errorf("%v", kept)
	}
	// By now the good one is older than twice the interval.
	s.pass(2 * time.Minute)
	s.taker.degraded("longer ago than twice the interval of 1h0m0s", "no record cluster")
	if listed := s.await("the problem", func(listed *clusterv1.ListSnapshotsResponse) bool { return listed.GetProblem() != "" }); !strings.Contains(listed.GetProblem(), "node "+s.id) {
		t.Errorf("%v", listed)
	}
	cut := s.good()
	cut.breaks = status.Error(codes.Internal, "cut off")
	s.member.present = cut.client(t)
	number++
	s.pass(time.Hour)
	if kept := s.ended(number); !contains(kept.GetFailure(), "cut off") || len(kept.GetSnapshots()) != 1 {
		t.Errorf("%v", kept)
	}
	if entries, err := os.ReadDir(filepath.Join(s.directory, "snapshots")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	// Ten minutes after a failure the next one is due.
	s.member.present = s.good().client(t)
	number++
	s.pass(10 * time.Minute)
	if kept := s.ended(number); kept.GetFailure() != "" || len(kept.GetSnapshots()) != 2 {
		t.Errorf("%v", kept)
	}
	s.taker.ready()
	count(4, 2, s.ended(number).GetSnapshots()[0])
}

// full is a member that has no room as long as there is more than one snapshot beside it.
type full struct {
	*member
	directory string
}

func (f *full) room() error {
	entries, _ := os.ReadDir(filepath.Join(f.directory, "snapshots"))
	if len(entries) < 2 {
		return nil
	}
	return noRoom("1")
}

// noRoom is what a member says that lacks so many bytes.
func noRoom(bytes string) error {
	refused, err := status.New(codes.FailedPrecondition, "full").WithDetails(&errdetails.ErrorInfo{Reason: consensusv1.NoRoom, Metadata: map[string]string{consensusv1.NoRoomMissing: bytes}})
	if err != nil {
		return err
	}
	return refused.Err()
}

// TestFullDisk holds that the oldest snapshots go where that makes room for the next, and never the last one.
func TestFullDisk(t *testing.T) {
	s := newSchedule(t)
	if err := s.set(time.Hour, 5, s.recipient); err != nil {
		t.Fatal(err)
	}
	for number := range uint64(3) {
		if kept := s.ended(number + 1); len(kept.GetSnapshots()) != int(number+1) {
			t.Fatalf("%v", kept)
		}
		s.pass(time.Hour)
	}
	s.ended(4)
	with := s.good()
	here := &full{member: with, directory: s.directory}
	with.may = here.room
	s.member.present = with.client(t)
	s.pass(time.Hour)
	if kept := s.ended(5).GetSnapshots(); len(kept) != 2 || kept[0].GetTask().GetNumber() != 5 || kept[1].GetTask().GetNumber() != 4 {
		t.Errorf("kept: %v", kept)
	}
	// Where something else fills the disk, none goes.
	for n, missing := range []string{strconv.Itoa(1 << 40), ""} {
		with.may = func() error { return noRoom(missing) }
		s.pass(time.Hour)
		if kept := s.ended(uint64(6 + n)); len(kept.GetSnapshots()) != 2 || kept.GetSnapshots()[0].GetTask().GetNumber() != 5 || !strings.HasPrefix(kept.GetFailure(), "full") {
			t.Errorf("kept: %v", kept)
		}
	}
}

// TestStewardChangesWhileASnapshotIsTaken holds that a curator that ends while it takes one takes that again, and that whoever is elected meanwhile asks for no other.
func TestStewardChangesWhileASnapshotIsTaken(t *testing.T) {
	s := newSchedule(t)
	begun := make(chan struct{}, 2)
	hangs := s.good()
	hangs.may = func() error {
		begun <- struct{}{}
		return nil
	}
	held := make(chan struct{})
	hangs.hold = held
	s.member.present = hangs.client(t)
	if err := s.set(time.Hour, 2, s.recipient); err != nil {
		t.Fatal(err)
	}
	<-begun
	// The steward is the first curator, or the taker: both change.
	if err := s.taker.stop(); err != nil {
		t.Fatal(err)
	}
	s.start(func(config *server.Config) { config.Now = func() time.Time { return time.Unix(0, s.clock.Load()) } })
	<-begun
	if err := s.curator.stop(); err != nil {
		t.Fatal(err)
	}
	s.pass(30 * time.Minute)
	close(held)
	if kept := s.ended(1); kept.GetFailure() != "" || len(kept.GetSnapshots()) != 1 {
		t.Errorf("%v", kept)
	}
	if listed := s.await("the list", func(*clusterv1.ListSnapshotsResponse) bool { return true }); listed.GetTask().GetNumber() != 1 {
		t.Errorf("%v", listed)
	}
	s.pass(31 * time.Minute)
	if kept := s.ended(2); len(kept.GetSnapshots()) != 2 {
		t.Errorf("%v", kept)
	}
}

// TestRecoveryKeyChangesWhileASnapshotIsTaken holds that a snapshot is sealed to the recovery key of when it is complete, and that another one is due at once after the key was changed.
func TestRecoveryKeyChangesWhileASnapshotIsTaken(t *testing.T) {
	s := newSchedule(t)
	begun, held := make(chan struct{}, 2), make(chan struct{})
	hangs := s.good()
	hangs.hold, hangs.may = held, func() error {
		begun <- struct{}{}
		return nil
	}
	s.member.present = hangs.client(t)
	if err := s.set(time.Hour, 2, s.recipient); err != nil {
		t.Fatal(err)
	}
	<-begun
	w := watch(t, clusterv1.NewNodeServiceClient(s.dial(s.taker, selfSigned(t, s.node))))
	change := func() string {
		t.Helper()
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		next := identity.Recipient().String()
		if err := s.set(time.Hour, 2, next); err != nil {
			t.Fatal(err)
		}
		w.await("the recovery key", func(r *clusterv1.WatchResponse) bool { return r.GetPolicy().GetRecoveryRecipient() == next })
		return next
	}
	next := change()
	close(held)
	kept := s.ended(1)
	if kept.GetFailure() != "" || len(kept.GetSnapshots()) != 1 || kept.GetSnapshots()[0].GetRecipient() != next || !strings.HasPrefix(kept.GetSnapshots()[0].GetSigner(), "sha256:") {
		t.Fatalf("%v", kept)
	}
	next = change()
	if kept = s.ended(2); kept.GetFailure() != "" || len(kept.GetSnapshots()) != 2 || kept.GetSnapshots()[0].GetRecipient() != next {
		t.Errorf("%v", kept)
	}
}
