package cache_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

var etcd *etcdtest.Etcd

func TestMain(m *testing.M) { etcdtest.Main(m, &etcd) }

const patience = 2 * time.Minute

// source is a store whose reads and watches a test can hold back and break.
type source struct {
	*store.Store
	mu     sync.Mutex
	breaks context.CancelFunc // ends the present watch
	gate   chan struct{}      // nil: watches begin at once
	fail   error              // of reads
	reads  int
	resume []int64 // the revisions after which watches began
	begun  event.Value[int]
}

func (s *source) ReadAll(ctx context.Context) (*store.State, error) {
	s.mu.Lock()
	s.reads++
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	return s.Store.ReadAll(ctx)
}

func (s *source) Watch(ctx context.Context, after int64) clientv3.WatchChan {
	s.mu.Lock()
	gate := s.gate
	ctx, s.breaks = context.WithCancel(ctx)
	s.resume = append(s.resume, after)
	begun := len(s.resume)
	s.mu.Unlock()
	s.begun.Set(begun)
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	return s.Store.Watch(ctx, after)
}

func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// breakWatch ends the present watch, and returns when the cache begins the next one, which waits for the gate: nothing comes by the former one any more.
func (r *rig) breakWatch(gate chan struct{}) {
	r.t.Helper()
	var before int
	r.source.set(func() {
		r.source.gate, before = gate, len(r.source.resume)
		r.source.breaks()
	})
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if _, err := r.source.begun.Wait(ctx, func(now int) bool { return now > before }); err != nil {
		r.t.Fatal("the cache does not watch again")
	}
}

// rig is a cache that runs.
type rig struct {
	t      *testing.T
	client *clientv3.Client
	source *source
	cache  *cache.Cache
}

func run(t *testing.T, prepare func(*source)) *rig {
	client := etcd.Client(t, etcd.NewPrefix())
	r := &rig{t: t, client: client, source: &source{Store: store.New(store.Config{Client: client, AnswerWithin: patience})}}
	if prepare != nil {
		prepare(r.source)
	}
	r.cache = cache.New(r.source, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.cache.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

// await returns the first snapshot that is accepted.
func (r *rig) await(what string, accept func(*cache.Snapshot) bool) *cache.Snapshot {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	snapshot, err := r.cache.Snapshots().Wait(ctx, accept)
	if err != nil {
		r.t.Fatalf("waiting for %s: %v", what, err)
	}
	return snapshot
}

func (r *rig) nodes(n int) *cache.Snapshot {
	r.t.Helper()
	return r.await(fmt.Sprintf("%d nodes", n), func(snapshot *cache.Snapshot) bool {
		return len(snapshot.Nodes) == n && len(snapshot.Directory.GetNodes()) == n
	})
}

// put writes the record of a new node, and returns its ID.
func (r *rig) put() string {
	r.t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	id := identity.NodeID(key)
	value, err := proto.Marshal(&clusterv1.NodeRecord{Id: id, PublicKey: key, State: clusterv1.NodeState_NODE_STATE_UP})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Put(r.t.Context(), "nodes/"+id, string(value)); err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) delete(key string) {
	r.t.Helper()
	if _, err := r.client.Delete(r.t.Context(), key); err != nil {
		r.t.Fatal(err)
	}
}

func TestFollows(t *testing.T) {
	r := run(t, nil)
	r.nodes(0)
	id := r.put()
	snapshot := r.nodes(1)
	if snapshot.Nodes[id] == nil {
		t.Errorf("nodes: %v", snapshot.Nodes)
	}
	r.delete("nodes/" + id)
	r.nodes(0)
}

// A watch that breaks is resumed where it was: nothing is read again, nothing is lost.
func TestResumes(t *testing.T) {
	r := run(t, nil)
	r.nodes(0) // what comes now is seen by the watch, which is there by then
	first := r.put()
	reached := r.nodes(1).Revision
	gate := make(chan struct{})
	r.breakWatch(gate)
	second := r.put()
	r.delete("nodes/" + first)
	close(gate)
	snapshot := r.await("both changes", func(snapshot *cache.Snapshot) bool {
		return len(snapshot.Nodes) == 1 && snapshot.Nodes[second] != nil
	})
	r.source.set(func() {
		if r.source.reads != 1 || r.source.resume[len(r.source.resume)-1] != reached {
			t.Errorf("read %d times, watched after %v; reached was %d", r.source.reads, r.source.resume, reached)
		}
	})
	if snapshot.Revision <= reached {
		t.Errorf("the revision went from %d to %d", reached, snapshot.Revision)
	}
}

// Where the store has dropped what the watch missed, everything is read again: what was deleted meanwhile is gone too.
func TestCompaction(t *testing.T) {
	r := run(t, nil)
	r.nodes(0) // what comes now is seen by the watch, which is there by then
	first := r.put()
	r.nodes(1)
	gate := make(chan struct{})
	r.breakWatch(gate)
	second := r.put()
	r.delete("nodes/" + first)
	if err := etcd.Compact(t.Context(), r.client); err != nil {
		t.Fatal(err)
	}
	close(gate)
	r.await("the second node alone", func(snapshot *cache.Snapshot) bool {
		return len(snapshot.Nodes) == 1 && snapshot.Nodes[second] != nil
	})
	r.source.set(func() {
		if r.source.reads != 2 {
			t.Errorf("read %d times", r.source.reads)
		}
	})
	r.put()
	r.nodes(2)
}

func TestStoreAwayAtFirst(t *testing.T) {
	r := run(t, func(s *source) { s.fail = errors.New("away") })
	r.put()
	r.source.set(func() { r.source.fail = nil })
	r.nodes(1)
}

// One that is slow sees the newest, not all.
func TestCoalesces(t *testing.T) {
	r := run(t, nil)
	watcher := r.cache.Snapshots().Watch()
	if _, err := watcher.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 20
	for range n {
		r.put()
	}
	newest := r.nodes(n)
	got, err := watcher.Next(t.Context())
	if err != nil || got != newest {
		t.Errorf("got revision %d, the newest is %d: %v", got.Revision, newest.Revision, err)
	}
}

// A record that cannot be read is left out, and comes back when it can.
func TestDamagedRecord(t *testing.T) {
	r := run(t, nil)
	id := r.put()
	good, err := r.client.Get(t.Context(), "nodes/"+id)
	if err != nil {
		t.Fatal(err)
	}
	r.nodes(1)
	if _, err := r.client.Put(t.Context(), "nodes/"+id, "\xff"); err != nil {
		t.Fatal(err)
	}
	if damaged := r.nodes(0); damaged.Damaged["nodes/"+id] == nil {
		t.Errorf("damaged: %v", damaged.Damaged)
	}
	if _, err := r.client.Put(t.Context(), "nodes/"+id, string(good.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	if mended := r.nodes(1); len(mended.Damaged) != 0 {
		t.Errorf("damaged: %v", mended.Damaged)
	}
}

// The directory keeps its revision while nothing in it changes.
func TestDirectoryRevision(t *testing.T) {
	r := run(t, nil)
	id := r.put()
	before := r.nodes(1)
	value, err := proto.Marshal(&clusterv1.NodeStatus{NodeId: id, Volume: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), "status/"+id, string(value)); err != nil {
		t.Fatal(err)
	}
	after := r.await("the status", func(snapshot *cache.Snapshot) bool { return snapshot.Statuses[id] != nil })
	if after.Directory.GetRevision() != before.Directory.GetRevision() {
		t.Errorf("the directory's revision went from %d to %d", before.Directory.GetRevision(), after.Directory.GetRevision())
	}
}
