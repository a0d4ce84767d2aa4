package store

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestRecentEntriesAreThoseThatFit lets go of the oldest entries only, of no more than it has to, and of none for which there is no snapshot.
func TestRecentEntriesAreThoseThatFit(t *testing.T) {
	log := raft.NewMemoryStorage()
	last := uint64(0)
	add := func(sizes ...int) {
		t.Helper()
		for _, size := range sizes {
			last++
			if err := log.Append([]*raftpb.Entry{{Index: new(last), Term: new(uint64(1)), Data: make([]byte, size)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	snapshot := func(index uint64) {
		t.Helper()
		if _, err := log.CreateSnapshot(index, &raftpb.ConfState{Voters: []uint64{1}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	kept := &recent{log: log, most: 100}
	first := func(applied, want uint64, what string) {
		t.Helper()
		if err := kept.trim(applied); err != nil {
			t.Fatal(err)
		}
		if found, _ := log.FirstIndex(); found != want {
			t.Errorf("%s: the log begins with entry %d, want %d", what, found, want)
		}
	}
	first(0, 1, "an empty log")
	add(40, 40, 20)
	snapshot(3)
	first(3, 1, "as much as there may be")
	add(1)
	first(3, 1, "one more that was not applied")
	first(4, 2, "one more")
	add(30, 30, 30)
	first(7, 4, "more than the snapshot is new, of which 1 and 90 fit")
	add(60, 60)
	first(9, 4, "two more, and no newer snapshot")
	add(1)
	snapshot(9)
	first(20, 9, "a newer snapshot, and less in the log than was applied")
	if err := log.Compact(9); err != nil { // as etcd does
		t.Fatal(err)
	}
	add(10)
	first(11, 10, "etcd has let go of some")
	if kept.bytes > kept.most {
		t.Errorf("it counts %d bytes", kept.bytes)
	}
	if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(50)), Term: new(uint64(2))}}); err != nil {
		t.Fatal(err)
	}
	first(50, 51, "the leader's database took the place of all")
	last = 50
	add(200, 20)
	snapshot(52)
	first(52, 52, "an entry that is too large by itself")
}
