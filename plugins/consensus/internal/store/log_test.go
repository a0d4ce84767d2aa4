package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestALongLogIsNotReadIntoMemory starts a member whose log has much that its database has, too: with a database that is older, whole, after it was killed as soon as it had noted
// a snapshot, and with its last record cut off.
func TestALongLogIsNotReadIntoMemory(t *testing.T) {
	size := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 256 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = size })
	directory := storetest.Directory(t)
	etcd := filepath.Join(directory, "data", "etcd")
	const keys = 40
	value := strings.Repeat("x", 64<<10)
	var last uint64
	fill := func(from, to int) {
		s, stop := storetest.Open(t, directory, storetest.Plan)
		defer stop()
		for n := from; n < to; n++ {
			storetest.Eventually(t, "a write", func() bool { // a slow disk may take too long for one
				_, err := s.Client().Put(store.Root(storetest.Context(t)), fmt.Sprintf("/key/%d", n), value)
				return err == nil
			})
		}
		last = s.Applied()
	}
	noted := func() uint64 {
		t.Helper()
		snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), datadir.ToWALDir(etcd))
		if err != nil || len(snapshots) == 0 {
			t.Fatal(err)
		}
		return snapshots[len(snapshots)-1].GetIndex()
	}
	fill(0, keys/2)
	if before := noted(); before >= last/2 {
		t.Fatalf("etcd has a snapshot of entry %d of %d by itself", before, last)
	}
	database := datadir.ToBackendFileName(etcd)
	older, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	half := last
	fill(keys/2, keys)
	for _, damage := range []string{"an older database", "none", "killed after the snapshot was noted", "cut off"} {
		want := last
		switch damage {
		case "an older database":
			want = half
			if err := os.WriteFile(database, older, 0o600); err != nil {
				t.Fatal(err)
			}
		case "killed after the snapshot was noted":
			if err := store.Trim(etcd); err != nil {
				t.Fatal(err)
			}
		case "cut off":
			cutOff(t, datadir.ToWALDir(etcd))
		}
		s, stop := storetest.Open(t, directory, storetest.Plan)
		ctx := store.Root(storetest.Context(t))
		patiently(t, ctx, func() error {
			answer, err := s.Client().Get(ctx, "/key/", clientPrefix)
			if err == nil && (len(answer.Kvs) != keys || slices.ContainsFunc(answer.Kvs, func(kv *keyValue) bool { return string(kv.Value) != value })) {
				t.Errorf("damage %s: %d keys", damage, len(answer.Kvs))
			}
			return err
		})
		patiently(t, ctx, func() error {
			_, err := s.Client().Put(ctx, "/more", "v")
			return err
		})
		stop()
		if after := noted(); after < want {
			t.Errorf("damage %s: the log is read from entry %d on, want %d at least", damage, after, want)
		}
	}
}

// TestAStartHasASnapshot starts a young member again, whose log etcd has made no snapshot of by itself: it does not begin with the first entry of the log.
func TestAStartHasASnapshot(t *testing.T) {
	directory := storetest.Directory(t)
	s, stop := storetest.Open(t, directory, storetest.Plan)
	applied := s.Applied()
	stop()
	s, stop = storetest.Open(t, directory, storetest.Plan)
	defer stop()
	if _, err := s.Client().Put(store.Root(storetest.Context(t)), "/key", "v"); err != nil {
		t.Error(err)
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), datadir.ToWALDir(filepath.Join(directory, "data", "etcd")))
	if err != nil || len(snapshots) == 0 || snapshots[len(snapshots)-1].GetIndex() == 0 {
		t.Errorf("the snapshots in the log are %v, and %d entries were applied: %v", snapshots, applied, err)
	}
}

// cutOff leaves the log as a machine that stopped in the middle of a write may: with half of its last record.
func cutOff(t *testing.T, directory string) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(directory, "*.wal"))
	slices.Sort(names)
	name := names[len(names)-1]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := len(content)
	for end > 0 && content[end-1] == 0 {
		end--
	}
	if err := os.WriteFile(name, content[:end-3], 0o600); err != nil {
		t.Fatal(err)
	}
}
