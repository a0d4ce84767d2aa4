package store

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
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
		if err := commitLog(zap.NewNop(), directory, 9); err != nil {
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
	if err := commitLog(zap.NewNop(), t.TempDir(), 9); err == nil {
		t.Error("a log that is missing counts")
	}
}

// TestCommitLogOfTheRemoved leaves out that the member itself is removed, and what follows: whoever wrote it did not need this member for it.
func TestCommitLogOfTheRemoved(t *testing.T) {
	const member = 9
	removal := func(of uint64) []byte {
		content, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &of})
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	directory := t.TempDir()
	made, err := wal.Create(zap.NewNop(), filepath.Join(directory, "member", "wal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	entries := []*raftpb.Entry{
		{Term: new(uint64(2)), Index: new(uint64(1))},
		{Term: new(uint64(2)), Index: new(uint64(2)), Type: raftpb.EntryConfChange.Enum(), Data: removal(member + 1)},
		{Term: new(uint64(2)), Index: new(uint64(3)), Type: raftpb.EntryConfChange.Enum(), Data: removal(member)},
		{Term: new(uint64(2)), Index: new(uint64(4))},
	}
	if err := made.Save(&raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(1))}, entries); err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	if err := commitLog(zap.NewNop(), directory, member); err != nil {
		t.Fatal(err)
	}
	opened, err := wal.Open(zap.NewNop(), filepath.Join(directory, "member", "wal"), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if _, state, _, err := opened.ReadAll(); err != nil || state.GetCommit() != 2 {
		t.Errorf("%v, %v", state, err)
	}
}

// TestAdoptRemade has the files that were made anew for a member take the place of the former ones: those of the member that the marker names, once, and wherever it was killed.
func TestAdoptRemade(t *testing.T) {
	directory := t.TempDir()
	lay := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "of"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lay(etcdDirectory(directory), "former")
	lay(remadeDirectory(directory, "ab"), "made")
	for _, step := range []struct {
		member, want string
	}{{"cd", "former"}, {"ab", "made"}, {"ab", "made"}} {
		if err := adoptRemade(directory, step.member); err != nil {
			t.Fatal(err)
		}
		if of, err := os.ReadFile(filepath.Join(etcdDirectory(directory), "of")); err != nil || string(of) != step.want {
			t.Errorf("of %s: %q, %v", step.member, of, err)
		}
	}
	lay(remadeDirectory(directory, "ef"), "made")
	if err := os.RemoveAll(etcdDirectory(directory)); err != nil { // killed in between
		t.Fatal(err)
	}
	if err := adoptRemade(directory, "ef"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(etcdDirectory(directory), "of")); err != nil {
		t.Error(err)
	}
}
