package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// written is a log that a test writes.
type written struct {
	t    *testing.T
	wal  *wal.WAL
	size int // of its entries
}

// begin begins a log in a directory.
func begin(t *testing.T, directory string) written {
	t.Helper()
	if err := os.MkdirAll(datadir.ToSnapDir(directory), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(zap.NewNop(), datadir.ToWALDir(directory), []byte("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	return written{t, w, 64}
}

// entries writes some of a term, and that another one is agreed upon.
func (w written) entries(from, to, term, committed uint64) {
	w.t.Helper()
	for index := from; index <= to; index++ {
		entry := &raftpb.Entry{Term: &term, Index: new(index), Data: make([]byte, w.size)}
		if err := w.wal.Save(&raftpb.HardState{Term: &term, Vote: new(uint64(1)), Commit: &committed}, []*raftpb.Entry{entry}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w written) snapshot(index, term uint64) {
	w.t.Helper()
	if err := w.wal.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}); err != nil {
		w.t.Fatal(err)
	}
}

// TestASnapshotIsPlacedWhereTheLogAllowsIt notes nothing that is not agreed upon, that had another term, or that is older than what etcd starts from.
func TestASnapshotIsPlacedWhereTheLogAllowsIt(t *testing.T) {
	for _, c := range []struct {
		name        string
		write       func(written)
		last, found uint64 // by the files of the snapshots, and in the database
		index, term uint64 // 0: nowhere
		fails       bool
	}{
		{name: "the database is behind the log", write: func(w written) { w.entries(1, 20, 1, 20) }, found: 12, index: 12, term: 1},
		{name: "what is agreed upon is behind the database", write: func(w written) { w.entries(1, 20, 1, 9) }, found: 12, index: 9, term: 1},
		{name: "nothing is agreed upon", write: func(w written) { w.entries(1, 20, 1, 0) }, found: 12},
		{name: "entries were written again with a later term", write: func(w written) { w.entries(1, 20, 1, 7); w.entries(8, 20, 3, 20) }, found: 12, index: 12, term: 3},
		{name: "entries after it were written again", write: func(w written) { w.entries(1, 20, 1, 12); w.entries(13, 20, 3, 20) }, found: 12, index: 12, term: 1},
		{name: "it is as old as a snapshot in the log", write: func(w written) { w.entries(1, 12, 1, 12); w.snapshot(12, 1); w.entries(13, 20, 1, 20) }, found: 12},
		{name: "the snapshot in the log is older", write: func(w written) { w.entries(1, 11, 1, 11); w.snapshot(11, 1); w.entries(12, 20, 1, 20) }, found: 12, index: 12, term: 1},
		{name: "the leader's snapshot is in the log, and not in the database", write: func(w written) { w.entries(1, 15, 1, 15); w.snapshot(100, 2); w.entries(101, 120, 2, 120) }, found: 12},
		{name: "the leader's snapshot is a file", write: func(w written) { w.entries(1, 20, 1, 20) }, last: 100, found: 12},
		{name: "the log begins later", write: func(w written) { w.snapshot(10, 1); w.entries(15, 20, 1, 20) }, found: 12, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := t.TempDir()
			w := begin(t, directory)
			c.write(w)
			if err := w.wal.Close(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(directory), "*.wal"))
			if err != nil {
				t.Fatal(err)
			}
			snapshot := &walpb.Snapshot{Index: new(c.found), Term: new(uint64(99))}
			newer, err := placeIn(files, c.last, snapshot)
			switch {
			case c.fails != (err != nil) || newer != (c.index != 0):
				t.Errorf("placed: %t, %v", newer, err)
			case newer && (snapshot.GetIndex() != c.index || snapshot.GetTerm() != c.term):
				t.Errorf("placed at entry %d of term %d, want %d of %d", snapshot.GetIndex(), snapshot.GetTerm(), c.index, c.term)
			}
		})
	}
}

// TestAnOlderDatabaseThanTheLastSnapshotIsLeft has a member that was killed while it took over the leader's database, which is not in place yet: etcd puts it there when it starts from
// the snapshot that came with it, and from no older one.
func TestAnOlderDatabaseThanTheLastSnapshotIsLeft(t *testing.T) {
	size := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = size })
	directory := t.TempDir()
	w := begin(t, directory)
	// Its own entries, which nobody else has, reach beyond the snapshot: the log has no gap.
	w.entries(1, 110, 1, 10)
	if err := os.WriteFile(filepath.Join(datadir.ToSnapDir(directory), fmt.Sprintf("%016x-%016x.snap", 2, 100)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.snapshot(100, 2)
	w.size = 4 << 10
	w.entries(101, 300, 2, 300)
	if err := w.wal.Close(); err != nil {
		t.Fatal(err)
	}
	apply(t, directory, 105, 1, 2, 3)
	if err := trim(zap.NewNop(), directory); err != nil {
		t.Fatal(err)
	}
	if last := lastNoted(t, directory); last.GetIndex() != 105 {
		t.Fatalf("with a newer database, the last snapshot is of entry %d", last.GetIndex())
	}
	apply(t, directory, 10, 1, 2, 3)
	if err := trim(zap.NewNop(), directory); err != nil {
		t.Error(err)
	}
	if last := lastNoted(t, directory); last.GetIndex() != 105 {
		t.Errorf("etcd would start from entry %d, and the log has a snapshot of 105", last.GetIndex())
	}
}

// TestANotedSnapshotNamesTheMembers knows voters and learners.
func TestANotedSnapshotNamesTheMembers(t *testing.T) {
	directory := t.TempDir()
	begin(t, directory).wal.Close()
	apply(t, directory, 10, 4, 2, 3)
	snapshot, err := readApplied(zap.NewNop(), datadir.ToBackendFileName(directory))
	if err != nil {
		t.Fatal(err)
	}
	if state := snapshot.GetConfState(); snapshot.GetIndex() != 10 || len(state.Voters) != 2 || len(state.Learners) != 1 || state.Learners[0] != 4 || len(state.LearnersNext) != 0 {
		t.Errorf("it is of entry %d and of %v", snapshot.GetIndex(), state)
	}
}

// apply makes a database that is as new as an entry, of two voters and the first member, which is a learner if its ID is 4.
func apply(t *testing.T, directory string, index uint64, ids ...types.ID) {
	t.Helper()
	database := backend.NewDefaultBackend(zap.NewNop(), datadir.ToBackendFileName(directory))
	defer database.Close()
	schema.CreateMetaBucket(database.BatchTx())
	members := schema.NewMembershipBackend(zap.NewNop(), database)
	members.MustCreateBackendBuckets()
	for _, id := range ids {
		members.MustSaveMemberToBackend(&membership.Member{ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{"http://a:1"}, IsLearner: id == 4}})
	}
	tx := database.BatchTx()
	tx.LockOutsideApply()
	schema.UnsafeUpdateConsistentIndexForce(tx, index, 1)
	tx.Unlock()
	database.ForceCommit()
}

// lastNoted is the snapshot from which etcd would start.
func lastNoted(t *testing.T, directory string) *walpb.Snapshot {
	t.Helper()
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), datadir.ToWALDir(directory))
	if err != nil || len(snapshots) == 0 {
		t.Fatal(err)
	}
	return snapshots[len(snapshots)-1]
}
