package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// recordsIn reads what a rehearsal has read.
func recordsIn(t testing.TB, taken *store.Snapshot) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for records := bufio.NewReader(taken.Records); ; {
		record := new(consensusv1.SnapshotRecord)
		err := protodelim.UnmarshalFrom(records, record)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[string(record.GetKey())] = string(record.GetValue())
	}
}

// TestRehearsal holds that a snapshot that is rehearsed says what it holds, user by user, and hands out what the cluster user has in it. What is sealed is still what was asked for.
func TestRehearsal(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	if err := s.EnsureUser(t.Context(), "ant"); err != nil {
		t.Fatal(err)
	}
	write(t, s, consensusv1.UserPrefix("ant")+"a", "1")
	const records = 40
	cluster := storetest.Plan.ClusterUser
	for n := range records {
		write(t, s, fmt.Sprintf("%sr/%d", consensusv1.UserPrefix(cluster), n), fmt.Sprint("value ", n))
	}
	deleted, err := s.Client().Delete(store.Root(t.Context()), consensusv1.UserPrefix(cluster)+"r/0")
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Recipient: identity.Recipient().String(), Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := snapshot.ParseManifest(taken.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	found := recordsIn(t, taken)
	if got := manifest.Rehearsal; got == nil || got.Users["ant"] != 1 || got.Users[cluster] != int64(len(found)) || got.Records != int64(len(found)) || got.Keys <= got.Users[cluster] {
		t.Errorf("it says %+v, with %d records", got, len(found))
	}
	if found["r/7"] != "value 7" || found["r/0"] != "" || len(found) < records-1 || manifest.Revision != deleted.Header.Revision {
		t.Errorf("at revision %d it has %v", manifest.Revision, found)
	}
	plain, err := age.Decrypt(taken, identity)
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, manifest, plain)
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
	wantOnly(t, filepath.Join(directory, "data"))
	// Nobody asked for it: nothing is said.
	if manifest, _ := take(t, s, ""); manifest.Rehearsal != nil {
		t.Errorf("one that was not rehearsed says %+v", manifest.Rehearsal)
	}
}

// TestBadSnapshotIsFound holds that a snapshot that cannot be restored, or is another store's, is not taken.
func TestBadSnapshotIsFound(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	if err := s.EnsureUser(t.Context(), "ant"); err != nil {
		t.Fatal(err)
	}
	write(t, s, consensusv1.UserPrefix("ant")+"a", "1")
	path := rehearsal.Path(filepath.Join(directory, "data", "rehearsal"))
	// The room is looked for once more between the copy and the rehearsal: then the file is whole.
	spoil := func(change func()) {
		s.SetFreeSpace(func() (int64, int64) {
			if content, err := os.ReadFile(path); err == nil && len(content)%512 == 32 {
				change()
			}
			return 1 << 40, 1 << 40
		})
	}
	refuse := func(reason string) {
		t.Helper()
		taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Rehearse: true})
		if !errors.Is(err, store.ErrRehearsal) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%t, %v; want %q", taken != nil, err, reason)
		}
		wantOnly(t, filepath.Join(directory, "data"))
	}
	spoil(func() {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			return
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Error(err)
		}
	})
	refuse("expected sha256")
	spoil(func() {
		if err := os.Truncate(path, 512+32); err != nil {
			t.Error(err)
		}
	})
	refuse("restore it")

	// An older snapshot of the same store is whole, and lacks a key.
	manifest, payload := take(t, s, "")
	older := unpack(t, manifest, strings.NewReader(string(payload)))
	write(t, s, consensusv1.UserPrefix("ant")+"b", "2")
	spoil(func() {
		if err := os.WriteFile(path, store.WithSum(older), 0o600); err != nil {
			t.Error(err)
		}
	})
	refuse("required revision is a future revision")
	spoil(func() {})
	if _, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Rehearse: true}); err != nil {
		t.Error(err)
	}
}

// TestRehearsalWithoutRoom holds that a rehearsal, which needs room for two more copies of the database, is not begun without it.
func TestRehearsalWithoutRoom(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	large(t, s)
	const all = 1 << 30
	free := 2*s.Server().Backend().Size() + all/50
	s.SetFreeSpace(func() (int64, int64) { return free, all })
	if _, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Rehearse: true}); !errors.Is(err, store.ErrUnfit) || !strings.Contains(err.Error(), "make room") {
		t.Error(err)
	}
	wantOnly(t, filepath.Join(directory, "data"))
}

// TestKilledWhileRehearsing kills the member while the snapshot is rehearsed: the process that does so ends with it, and the next start removes what is left.
func TestKilledWhileRehearsing(t *testing.T) {
	directory := storetest.Directory(t)
	s, closeStore := storetest.Open(t, directory, storetest.Plan)
	large(t, s)
	closeStore()
	helper := exec.Command(os.Args[0])
	helper.Env = []string{snapshotHelper + "=" + directory, snapshotRehearse + "=1", "REEVE_TEST_SNAPSHOT_POINT=read"}
	output, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(directory, "data", "rehearsal", "etcd")
	storetest.Eventually(t, "the snapshot is restored", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	if err := helper.Process.Kill(); err != nil {
		t.Error(err)
	}
	// Who rehearses has not the pipe, and ends with its parent.
	if rest, _ := io.ReadAll(output); len(rest) > 0 {
		t.Errorf("it was over before: %s", rest)
	}
	_ = helper.Wait()
	s, _ = storetest.Open(t, directory, storetest.Plan)
	wantOnly(t, filepath.Join(directory, "data"))
	take(t, s, "")
}

// TestRehearsalIsBounded holds that a rehearsal which needs more memory than it may have fails, and says so.
func TestRehearsalIsBounded(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	// etcd has every key in memory.
	const perCall, calls = 100, 300
	long := strings.Repeat("k", 2<<10)
	for call := range calls {
		var puts []clientv3.Op
		for n := range perCall {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/k/%d/%d/%s", call, n, long), ""))
		}
		if _, err := s.Client().Txn(store.Root(storetest.Context(t))).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	manifest, payload := take(t, s, "")
	plan := rehearsal.Plan{Directory: t.TempDir(), Records: "/none/", Revision: manifest.Revision, Memory: 64 << 20, Within: storetest.RestBound}
	if err := os.WriteFile(rehearsal.Path(plan.Directory), store.WithSum(unpack(t, manifest, bytes.NewReader(payload))), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := rehearsal.Run(storetest.Context(t), plan)
	// The race detector does not look whether it was given memory.
	if !errors.Is(err, store.ErrRehearsal) || !strings.Contains(err.Error(), "needs more than 64 MiB of memory") && !strings.Contains(err.Error(), "SIGSEGV") {
		t.Error(err)
	}
}

// TestLeaderChangesWhileASnapshotIsTaken holds that a snapshot stays what the store was at its revision when another member comes to lead in the middle of it.
func TestLeaderChangesWhileASnapshotIsTaken(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	large(t, s)
	storetest.Join(t, s, directory)
	own := s.Server().MemberID()
	other := own
	for _, member := range s.Server().Cluster().Members() {
		if member.ID != own {
			other = member.ID
		}
	}
	lead := func(to types.ID) {
		storetest.Eventually(t, "another member leads", func() bool {
			attempt, cancel := context.WithTimeout(storetest.Context(t), time.Second) // raft drops some, and says nothing
			defer cancel()
			if s.Server().Leader() != to {
				_ = s.Server().MoveLeader(attempt, uint64(s.Server().Leader()), uint64(to))
			}
			return s.Server().Leader() == to
		})
	}
	lead(own)
	var looks atomic.Int64
	s.SetFreeSpace(func() (int64, int64) {
		if looks.Add(1) == 3 { // in the middle of the copy
			lead(other)
			storetest.Eventually(t, "the other leader takes a write", func() bool {
				_, err := s.Client().Put(store.Root(storetest.Context(t)), "/k/meanwhile", "v")
				return err == nil
			})
		}
		return 1 << 40, 1 << 40
	})
	var taken *store.Snapshot
	storetest.Eventually(t, "the store has a quorum", func() (done bool) {
		var err error
		if taken, err = s.Snapshot(storetest.Context(t), store.SnapshotOptions{Rehearse: true}); err != nil && !errors.Is(err, store.ErrNotNow) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer taken.Close()
	manifest, err := snapshot.ParseManifest(taken.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	if got := revisions(t, unpack(t, manifest, taken)); got["/k/meanwhile"] != 0 || got["/k/0"] == 0 || looks.Load() < 3 {
		t.Errorf("after %d looks it has %v", looks.Load(), got)
	}
}

// TestSnapshotOfADamagedMember holds that a member whose data the leader doubts takes no snapshot that would be called good. A person may have that of one of two members, of which nobody can tell which is right.
func TestSnapshotOfADamagedMember(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	for _, certain := range []bool{true, false} {
		key := peers.DamagedKey(uint64(s.Server().MemberID()), certain)
		if _, err := s.Client().Put(store.Root(storetest.Context(t)), key, "it holds other data than that of reeve-2"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Rehearse: !certain})
		if !errors.Is(err, store.ErrUnfit) || !strings.Contains(err.Error(), "it holds other data than that of reeve-2") {
			t.Errorf("certainly damaged %v: %v", certain, err)
		}
		taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{})
		if certain != errors.Is(err, store.ErrUnfit) || !certain && err != nil {
			t.Errorf("certainly damaged %v, for a person: %v", certain, err)
		}
		if err == nil {
			taken.Close()
		}
		if _, err := s.Client().Delete(store.Root(storetest.Context(t)), key); err != nil {
			t.Fatal(err)
		}
	}
	take(t, s, "")
}
