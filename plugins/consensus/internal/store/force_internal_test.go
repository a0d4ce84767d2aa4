package store

import (
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// TestCommitLog has all of a log count: the last entries may have been acknowledged before the member heard of it.
func TestCommitLog(t *testing.T) {
	directory := t.TempDir()
	made, err := wal.Create(zap.NewNop(), filepath.Join(directory, "member", "wal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for index := range uint64(5) {
		entries = append(entries, &raftpb.Entry{Term: new(uint64(2)), Index: new(index + 1)})
	}
	if err := made.Save(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(7)), Commit: new(uint64(3))}, entries); err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := commitLog(zap.NewNop(), directory); err != nil {
			t.Fatal(err)
		}
		opened, err := wal.Open(zap.NewNop(), filepath.Join(directory, "member", "wal"), &walpb.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		_, state, kept, err := opened.ReadAll()
		if err != nil || len(kept) != 5 || state.GetCommit() != 5 || state.GetTerm() != 2 || state.GetVote() != 7 {
			t.Errorf("%d entries, %v, %v", len(kept), state, err)
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := commitLog(zap.NewNop(), t.TempDir()); err == nil {
		t.Error("a log that is missing counts")
	}
}
