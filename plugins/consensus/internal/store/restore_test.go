package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// restored is the plan of the member that a store is restored by.
var restored = store.Plan{ClusterID: "cluster-a", NodeID: "reeve-9", ClusterUser: "curator", Restored: true}

// sent takes a snapshot that is not sealed, and returns the line of its manifest and what a member is sent of it.
func sent(t testing.TB, s *store.Store) (line, database []byte) {
	t.Helper()
	manifest, payload := take(t, s, "")
	database = unpack(t, manifest, bytes.NewReader(payload))
	line, err := manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(database)
	return line, append(database, sum[:]...)
}

func receive(t testing.TB, config store.Config, line, database []byte) {
	t.Helper()
	if err := store.Receive(t.Context(), config, line, bytes.NewReader(database)); err != nil {
		t.Fatal(err)
	}
}

// read returns the value of a key; empty: it is not there.
func read(t testing.TB, s *store.Store, key string) string {
	t.Helper()
	answer, err := s.Client().Get(store.Root(storetest.Context(t)), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

// generationOf is the document of a store's generation.
func generationOf(t testing.TB, s *store.Store) *consensusv1.StoreGeneration {
	t.Helper()
	generation := new(consensusv1.StoreGeneration)
	if err := proto.Unmarshal([]byte(read(t, s, consensusv1.UserPrefix("curator")+consensusv1.StoreGenerationKey)), generation); err != nil {
		t.Fatal(err)
	}
	return generation
}

func authority(t testing.TB, s *store.Store) []byte {
	t.Helper()
	found, err := s.Authority()
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	return found.Certificates()[0]
}

func TestRestore(t *testing.T) {
	former, closeFormer := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := store.Root(storetest.Context(t))
	if err := former.EnsureUser(t.Context(), "lighthouse"); err != nil {
		t.Fatal(err)
	}
	write(t, former, "/reeve/users/lighthouse/counter", "41")
	write(t, former, "/reeve/users/lighthouse/counter", "42")
	write(t, former, peers.AnnouncementKey("reeve-2"), "former")
	write(t, former, peers.AskedKey, "3")
	lease, err := former.Client().Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Client().Put(ctx, "/k/leased", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	formerCA := authority(t, former)
	line, database := sent(t, former)
	last := write(t, former, "/k/later", "v")
	closeFormer()

	began := time.Now()
	config := storetest.Config(t, storetest.Directory(t))
	receive(t, config, line, database)
	s, closeStore := storetest.OpenWith(t, config, restored)
	wantOnly(t, config.Directory)
	if got := read(t, s, "/reeve/users/lighthouse/counter"); got != "42" {
		t.Errorf("the counter is %q", got)
	}
	if later, left := read(t, s, "/k/later"), read(t, s, peers.AnnouncementKey("reeve-2")); later != "" || left != "" {
		t.Errorf("what was written after the snapshot is there (%q), or what a former member said (%q)", later, left)
	}
	if got := read(t, s, peers.AskedKey); got != "3" {
		t.Errorf("the CA of the peers was asked for %q times", got)
	}
	if bytes.Equal(authority(t, s), formerCA) {
		t.Error("former members have the CA by which the members know each other")
	}
	if status, _ := s.Status().Get(); status.Users["lighthouse"] == 0 || status.Users["curator"] == 0 || len(s.Peers()) != 1 {
		t.Errorf("users %v, members %v", status.Users, s.Peers())
	}
	if _, err := s.Client().Get(t.Context(), "/k/leased"); err == nil {
		t.Error("authorization is off")
	}
	if answer, err := s.Client().TimeToLive(ctx, lease.ID); err != nil || answer.TTL <= 0 {
		t.Errorf("the lease: %v, %v", answer, err)
	}
	// No client sees a revision go back, and a watch that was open learns that it has missed something.
	if next := write(t, s, "/k/next", "v"); next <= last {
		t.Errorf("the revision went from %d to %d", last, next)
	}
	watch := <-s.Client().Watch(ctx, "/k/", clientv3.WithPrefix(), clientv3.WithRev(last))
	if !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from revision %d: %v", last, watch.Err())
	}
	generation := generationOf(t, s)
	manifest, err := snapshot.ParseManifest(line)
	if err != nil || generation.GetNumber() < uint64(began.Unix()) || len(generation.GetId()) != 16 || generation.GetNodeId() != "reeve-9" || generation.GetRevision() != manifest.Revision ||
		generation.GetTaken() != manifest.Time.Unix() || generation.GetKind() != consensusv1.StoreGenerationKind_STORE_GENERATION_KIND_RESTORED {
		t.Errorf("generation %v, %v", generation, err)
	}
	member := s.MemberID()
	closeStore()

	// The same again finds what there is, and reads nothing.
	if err := store.Receive(t.Context(), config, line, nil); err != nil {
		t.Error(err)
	}
	s, closeStore = storetest.OpenWith(t, config, restored)
	if now := s.Generation(); s.MemberID() != member || now.Number != generation.GetNumber() || !bytes.Equal(now.ID, generation.GetId()) {
		t.Errorf("member %s of generation %s", s.MemberID(), now)
	}
	line, again := sent(t, s)
	closeStore()
	existing := restored
	existing.Restored = false
	_, closeStore = storetest.OpenWith(t, config, existing)
	closeStore()

	// A snapshot of a restored store makes the next generation.
	config = storetest.Config(t, storetest.Directory(t))
	receive(t, config, line, again)
	s, _ = storetest.OpenWith(t, config, restored)
	if next := s.Generation(); next.Number <= generation.GetNumber() || bytes.Equal(next.ID, generation.GetId()) {
		t.Errorf("generation %s", next)
	}
}

// TestRestoredRevisionsGrow holds that stores that are restored from one snapshot one after the other have no revision in common.
func TestRestoredRevisionsGrow(t *testing.T) {
	taken := time.Unix(1_700_000_000, 0)
	if first, clockBack := store.BumpFor(taken, taken.Add(time.Hour)), store.BumpFor(taken, taken.Add(-time.Hour)); first != 1_003_600_000 || clockBack != 1_000_000_000 {
		t.Errorf("%d, and with a clock that went back %d", first, clockBack)
	}
}

// TestRestoreGoesOn holds that what a killed process leaves is begun again.
func TestRestoreGoesOn(t *testing.T) {
	former, closeFormer := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	write(t, former, "/k/a", "v")
	line, database := sent(t, former)
	closeFormer()
	config := storetest.Config(t, storetest.Directory(t))
	left := filepath.Join(config.Directory, "restore")
	for path, content := range map[string][]byte{
		filepath.Join(left, "manifest.json"):                              line,
		filepath.Join(left, ".database1234"):                              database[:100],
		filepath.Join(config.Directory, "etcd", "member", "snap", "db"):   database[:4096],
		filepath.Join(config.Directory, "etcd", "member", "wal", "0.wal"): nil,
		filepath.Join(config.Directory, "store.json"):                     []byte(`{"version":1,"clusterId":"cluster-a","nodeId":"reeve-9","phase":"forming"}`),
	} {
		storetest.Mkdir(t, filepath.Dir(path))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var problem *store.Problem
	if _, err := store.Open(t.Context(), config, restored); !errors.As(err, &problem) {
		t.Errorf("without the whole snapshot: %v", err)
	}
	receive(t, config, line, database)
	other := restored
	other.ClusterID = "cluster-b"
	if _, err := store.Open(t.Context(), config, other); !errors.As(err, &problem) || problem.Kind != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_FOREIGN {
		t.Errorf("of another cluster: %v", err)
	}
	s, _ := storetest.OpenWith(t, config, restored)
	if read(t, s, "/k/a") != "v" {
		t.Error("it is not what was restored")
	}
	wantOnly(t, config.Directory)
}

func TestReceiveRefuses(t *testing.T) {
	former, closeFormer := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	line, database := sent(t, former)
	closeFormer()
	flipped := slices.Clone(database)
	flipped[len(flipped)/2] ^= 1
	otherSum := slices.Clone(database)
	otherSum[len(otherSum)-1] ^= 1
	for name, test := range map[string]struct {
		line, database []byte
		quota          int64
		want           error
	}{
		"nothing":             {line, nil, 0, store.ErrSnapshot},
		"cut off":             {line, database[:len(database)/2], 0, store.ErrSnapshot},
		"no hash":             {line, database[:len(database)-1], 0, store.ErrSnapshot},
		"something behind":    {line, append(slices.Clone(database), 0), 0, store.ErrSnapshot},
		"a flipped bit":       {line, flipped, 0, store.ErrSnapshot},
		"another hash":        {line, otherSum, 0, store.ErrSnapshot},
		"no manifest":         {nil, database, 0, store.ErrSnapshot},
		"more than the quota": {line, database, 1 << 10, store.ErrUnfit},
	} {
		t.Run(name, func(t *testing.T) {
			config := storetest.Config(t, storetest.Directory(t))
			config.Quota = test.quota
			if err := store.Receive(t.Context(), config, test.line, bytes.NewReader(test.database)); !errors.Is(err, test.want) {
				t.Errorf("%v", err)
			}
			config.Quota = 0
			var problem *store.Problem
			if _, err := store.Open(t.Context(), config, restored); !errors.As(err, &problem) || problem.Kind != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
				t.Errorf("a store was made of it: %v", err)
			}
			receive(t, config, line, database)
		})
	}
	t.Run("given up", func(t *testing.T) {
		config := storetest.Config(t, storetest.Directory(t))
		broken := io.MultiReader(bytes.NewReader(database[:4096]), failing{})
		if err := store.Receive(t.Context(), config, line, broken); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
	})
}

var errBroken = fmt.Errorf("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }
