package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/hashicorp/go-hclog"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// take takes a snapshot and reads all of it. The payload is what the manifest says.
func take(t testing.TB, s *store.Store, recipient string) (*snapshot.Manifest, []byte) {
	t.Helper()
	taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{Recipient: recipient})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	manifest, err := snapshot.ParseManifest(taken.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := io.ReadAll(taken)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(payload)); manifest.PayloadSize != int64(len(payload)) || manifest.PayloadSHA256 != got {
		t.Fatalf("a payload of %d bytes with hash %s, and the manifest says %+v", len(payload), got, manifest)
	}
	return manifest, payload
}

// unpack returns the database in a payload that is not sealed.
func unpack(t testing.TB, manifest *snapshot.Manifest, payload io.Reader) []byte {
	t.Helper()
	decoder, err := zstd.NewReader(payload)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	content, err := io.ReadAll(decoder)
	if err != nil {
		t.Fatal(err)
	}
	database, sum := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if got := sha256.Sum256(database); !bytes.Equal(got[:], sum) || fmt.Sprintf("%x", got) != manifest.DatabaseSHA256 || int64(len(database)) != manifest.DatabaseSize {
		t.Fatalf("a database of %d bytes with hash %x, which ends with %x, and the manifest says %+v", len(database), got, sum, manifest)
	}
	return database
}

// revisions are the keys below /k/ in a database with the revision of their last change, as bbolt has them.
func revisions(t testing.TB, database []byte) map[string]int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, database, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	found := make(map[string]int64)
	err = opened.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(revision, value []byte) error {
			record := new(mvccpb.KeyValue)
			if err := proto.Unmarshal(value, record); err != nil {
				return err
			}
			if strings.HasPrefix(string(record.Key), "/k/") {
				found[string(record.Key)] = int64(binary.BigEndian.Uint64(revision))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// write writes a key and returns the revision of that.
func write(t testing.TB, s *store.Store, key, value string) int64 {
	t.Helper()
	answer, err := s.Client().Put(store.Root(storetest.Context(t)), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func TestSnapshot(t *testing.T) {
	config := storetest.Config(t, storetest.Directory(t))
	config.Version = "1.2.3"
	// What a process leaves that was killed before it took the name of its file away.
	if err := os.WriteFile(store.SpoolPath(config.Directory), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	revision := write(t, s, "/k/a", "secret-of-a")
	before := time.Now()
	manifest, payload := take(t, s, "")
	if manifest.ClusterID != "cluster-a" || manifest.NodeID != "reeve-1" || manifest.MemberID != s.MemberID() || manifest.ReeveVersion != "1.2.3" || manifest.Recipient != "" ||
		manifest.Revision != revision || !strings.HasPrefix(manifest.StorageVersion, "3.") || manifest.Time.Before(before.Add(-time.Second)) {
		t.Errorf("after revision %d: %+v", revision, manifest)
	}
	if got := revisions(t, unpack(t, manifest, bytes.NewReader(payload))); got["/k/a"] != revision || len(got) != 1 {
		t.Errorf("it has %v", got)
	}

	// Sealed, it is read by who has the key, and the member's directory has nothing of it.
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	recipient := identity.Recipient().String()
	manifest, payload = take(t, s, recipient)
	if manifest.Recipient != recipient || bytes.Contains(payload, []byte("secret-of-a")) {
		t.Errorf("sealed to %s: %+v", recipient, manifest)
	}
	plain, err := age.Decrypt(bytes.NewReader(payload), identity)
	if err != nil {
		t.Fatal(err)
	}
	if got := revisions(t, unpack(t, manifest, plain)); got["/k/a"] != revision {
		t.Errorf("it has %v", got)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := age.Decrypt(bytes.NewReader(payload), other); err == nil {
		t.Error("another key opens it")
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	manifest, payload = take(t, s, hybrid.Recipient().String())
	if plain, err = age.Decrypt(bytes.NewReader(payload), hybrid); err != nil {
		t.Fatal(err)
	}
	unpack(t, manifest, plain)
	for _, none := range []string{"age1", "age1pq1", "somebody", identity.String()} {
		if _, err := s.Snapshot(t.Context(), store.SnapshotOptions{Recipient: none}); !errors.Is(err, store.ErrRecipient) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("to %.12s: %v", none, err)
		}
	}
	wantOnly(t, config.Directory)
}

// wantOnly holds that a member's directory has nothing of a snapshot.
func wantOnly(t testing.TB, directory string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains([]string{"etcd", "lock", "peer", "store.json"}, entry.Name()) {
			t.Errorf("%s is left", entry.Name())
		}
	}
}

// TestSnapshotOfAWritingStore holds that a snapshot has every write that was acknowledged before it was asked for, and is the store as it was at its revision: nothing that came later.
func TestSnapshotOfAWritingStore(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	const writers, snapshots = 4, 3
	var mu sync.Mutex
	written := make(map[string]int64)
	acknowledged := func() map[string]int64 {
		mu.Lock()
		defer mu.Unlock()
		now := make(map[string]int64, len(written))
		for key, revision := range written {
			now[key] = revision
		}
		return now
	}
	ctx, stop := context.WithCancel(storetest.Context(t))
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	for writer := range writers {
		writing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("/k/%d/%d", writer, n)
				answer, err := s.Client().Put(store.Root(ctx), key, "v")
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				written[key] = answer.Header.Revision
				mu.Unlock()
			}
		})
	}
	for range snapshots {
		least := len(acknowledged()) + 50
		storetest.Eventually(t, "writes go on", func() bool { return len(acknowledged()) >= least })
		before := acknowledged()
		manifest, payload := take(t, s, "")
		after := acknowledged()
		got := revisions(t, unpack(t, manifest, bytes.NewReader(payload)))
		for key, revision := range before {
			if got[key] != revision {
				t.Fatalf("%s was acknowledged at revision %d before, and the snapshot of revision %d has it at %d", key, revision, manifest.Revision, got[key])
			}
		}
		for key, revision := range after {
			if found, there := got[key]; there != (revision <= manifest.Revision) || there && found != revision {
				t.Fatalf("%s is of revision %d, and the snapshot of revision %d has it at %d", key, revision, manifest.Revision, found)
			}
		}
		for key, revision := range got {
			if revision > manifest.Revision {
				t.Fatalf("%s is of revision %d, in a snapshot of revision %d", key, revision, manifest.Revision)
			}
		}
	}
}

// TestRevisionOfACompactedStore holds that the revision does not go back where nothing is left of the last change.
func TestRevisionOfACompactedStore(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	write(t, s, "/k/a", "v")
	deleted, err := s.Client().Delete(store.Root(storetest.Context(t)), "/k/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Recover(storetest.Context(t), s); err != nil {
		t.Fatal(err)
	}
	manifest, payload := take(t, s, "")
	if manifest.Revision != deleted.Header.Revision || manifest.CompactRevision != deleted.Header.Revision {
		t.Errorf("after revision %d: %+v", deleted.Header.Revision, manifest)
	}
	if got := revisions(t, unpack(t, manifest, bytes.NewReader(payload))); got["/k/a"] != 0 && len(got) != 1 {
		t.Errorf("it has %v", got)
	}
}

// TestSlowReaderHoldsNothing holds that the store does not wait for whoever reads a snapshot: its database is defragmented meanwhile. There is one snapshot at a time.
func TestSlowReaderHoldsNothing(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	write(t, s, "/k/0", string(make([]byte, 1<<20)))
	taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hole(t, s)
	if recovered, err := storetest.Recover(storetest.Context(t), s); err != nil || recovered.After >= recovered.Before {
		t.Errorf("defragmenting while a snapshot is not read: %+v, %v", recovered, err)
	}
	write(t, s, "/k/b", "v")
	if _, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{}); !errors.Is(err, store.ErrUnderway) || !strings.Contains(err.Error(), "node reeve-1") {
		t.Errorf("a second one: %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
	take(t, s, "")
}

// large writes so much that a snapshot looks for room once more while it is written.
func large(t testing.TB, s *store.Store) {
	t.Helper()
	value := make([]byte, 1<<20)
	for n := range store.MarginEvery>>20 + 2 {
		if _, err := rand.Read(value); err != nil {
			t.Fatal(err)
		}
		write(t, s, fmt.Sprintf("/k/%d", n), string(value))
	}
}

// hole has the database have a hole, so that there is something to defragment. What is deleted while the database is copied leaves none until that is done.
func hole(t testing.TB, s *store.Store) {
	t.Helper()
	ctx := store.Root(storetest.Context(t))
	deleted, err := s.Client().Delete(ctx, "/k/0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	database := s.Server().Backend()
	storetest.Eventually(t, "the database has a hole", func() bool {
		database.ForceCommit()
		return database.SizeInUse() < database.Size()-512<<10
	})
}

// TestSnapshotAndDefragmenting holds that the database is not defragmented while it is copied, for which everybody would wait, and that a copy that nobody waits for ends. The next
// one waits until the database was defragmented.
func TestSnapshotAndDefragmenting(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	large(t, s)
	hole(t, s)
	copying, goOn := make(chan struct{}), make(chan struct{})
	looks := 0
	s.SetFreeSpace(func() (int64, int64) {
		if looks++; looks == 2 {
			close(copying)
			<-goOn
		}
		return 1 << 40, 1 << 40
	})
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := s.Snapshot(ctx, store.SnapshotOptions{})
		failed <- err
	}()
	select {
	case <-copying:
	case err := <-failed:
		t.Fatalf("the snapshot is over before its copy was held up: %v", err)
	}
	if _, err := storetest.Recover(storetest.Context(t), s); !errors.Is(err, store.ErrCopying) {
		t.Errorf("defragmenting while the database is copied: %v", err)
	}
	write(t, s, "/k/meanwhile", "v")
	cancel()
	close(goOn)
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that nobody waits for: %v", err)
	}
	if _, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{}); !errors.Is(err, store.ErrNotNow) || !strings.Contains(err.Error(), "to be defragmented first") {
		t.Errorf("a copy before the database was defragmented: %v", err)
	}
	if recovered, err := storetest.Recover(storetest.Context(t), s); err != nil || recovered.After >= recovered.Before {
		t.Errorf("defragmenting after that: %+v, %v", recovered, err)
	}
	take(t, s, "")
}

// TestSnapshotWithoutRoom holds that a snapshot never takes the room that the others on the disk need.
func TestSnapshotWithoutRoom(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	large(t, s)
	const all = 1 << 30
	margin := int64(all / 50)
	free := int64(0)
	var err error
	for size := int64(-1); size != s.Server().Backend().Size(); { // once more if the database has grown meanwhile
		size = s.Server().Backend().Size()
		free = size + margin
		s.SetFreeSpace(func() (int64, int64) { return free - 1, all })
		_, err = s.Snapshot(storetest.Context(t), store.SnapshotOptions{})
	}
	if !errors.Is(err, store.ErrUnfit) || !strings.Contains(err.Error(), "MiB are needed: make room on it") {
		t.Errorf("too little room: %v", err)
	}
	if short := (*store.ShortError)(nil); !errors.As(err, &short) || short.Missing != 1 {
		t.Errorf("what is missing: %v", err)
	}
	// Somebody else takes it meanwhile.
	looks := 0
	s.SetFreeSpace(func() (int64, int64) {
		if looks++; looks == 1 {
			return 2 * free, all
		}
		return margin, all
	})
	if _, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{}); !errors.Is(err, store.ErrUnfit) || looks != 2 {
		t.Errorf("room that goes while it is taken, after %d looks: %v", looks, err)
	}
	wantOnly(t, filepath.Join(directory, "data"))
	s.SetFreeSpace(func() (int64, int64) { return 1 << 40, all })
	take(t, s, "")
}

// TestSnapshotWithoutQuorum holds that a member that is cut off does not give an old state away as the present one.
func TestSnapshotWithoutQuorum(t *testing.T) {
	s := lonely(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*storetest.Election)
	defer cancel()
	if taken, err := s.Snapshot(ctx, store.SnapshotOptions{}); !errors.Is(err, store.ErrNotNow) {
		t.Errorf("without a quorum: %t, %v", taken != nil, err)
	}
}

// snapshotHelper, in the environment, names the directory of a store of which the test binary takes a snapshot, and snapshotPoint where it waits to be killed.
const snapshotHelper, snapshotPoint = "REEVE_TEST_SNAPSHOT", "REEVE_TEST_SNAPSHOT_POINT"

// snapshotRehearse, in the environment, has it rehearsed.
const snapshotRehearse = "REEVE_TEST_SNAPSHOT_REHEARSE"

func runSnapshotHelper() {
	directory, point := os.Getenv(snapshotHelper), os.Getenv(snapshotPoint)
	fail := func(err error) {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	s, err := store.Open(context.Background(), store.Config{
		Log: hclog.NewNullLogger(), Directory: filepath.Join(directory, "data"), RuntimeDirectory: filepath.Join(directory, "run"),
		Heartbeat: storetest.Heartbeat, Election: storetest.Election, Version: "1",
	}, storetest.Plan)
	if err != nil {
		fail(err)
	}
	looks := 0
	s.SetFreeSpace(func() (int64, int64) {
		if looks++; point == fmt.Sprint("look ", looks) {
			fmt.Println(point)
			select {} // until it is killed
		}
		return 1 << 40, 1 << 40
	})
	taken, err := s.Snapshot(context.Background(), store.SnapshotOptions{Rehearse: os.Getenv(snapshotRehearse) != ""})
	if err != nil {
		fail(err)
	}
	if _, err := taken.Read(make([]byte, 1)); err != nil {
		fail(err)
	}
	fmt.Println("read")
	select {}
}

// TestKilledWhileASnapshotIsTaken kills the process before the copy is begun, in the middle of it, and while it is read. Nothing is left of it on the disk.
func TestKilledWhileASnapshotIsTaken(t *testing.T) {
	directory := storetest.Directory(t)
	s, closeStore := storetest.Open(t, directory, storetest.Plan)
	large(t, s)
	closeStore()
	for _, point := range []string{"look 1", "look 2", "read"} {
		t.Run(point, func(t *testing.T) {
			helper := exec.Command(os.Args[0])
			helper.Env = []string{snapshotHelper + "=" + directory, snapshotPoint + "=" + point}
			output, err := helper.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := helper.Start(); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, len(point)+1)
			if _, err := io.ReadFull(output, said); err != nil || string(said) != point+"\n" {
				rest, _ := io.ReadAll(output)
				t.Errorf("it says %q, %v", string(said)+string(rest), err)
			}
			if err := helper.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = helper.Wait()
			wantOnly(t, filepath.Join(directory, "data"))
		})
	}
	s, _ = storetest.Open(t, directory, storetest.Plan)
	take(t, s, "")
}
