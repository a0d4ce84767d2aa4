package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// generous has a curator that a busy machine keeps from running for a moment not be taken for one that is gone. One that could not resign is followed within patience.
func generous(config *server.Config) { config.StewardTTL = time.Minute }

// candidates returns the keys of those that stand for election, the one that has won first.
func (c *cluster) candidates() (keys []string) {
	c.t.Helper()
	got, err := c.client().Get(c.t.Context(), "steward/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// leaves has a node that was a member leave, and waits until the steward has seen that.
func (c *cluster) leaves() {
	c.t.Helper()
	id := c.nodeWith("store")
	c.tell(c.id, id)
	if _, err := c.removeRole(id, "store"); err != nil {
		c.t.Fatal(err)
	}
	c.tell(c.id)
	c.await(id, "the end of its role", func(node *clusterv1.Node) bool { return len(node.GetRecord().GetRoles()) == 0 })
}

// When the curator that does the work of all ends, or loses its word without knowing, another one goes on.
func TestStewardFailsOver(t *testing.T) {
	c := newClusterOn(t, etcd, generous)
	c.leaves()
	second := start(t, etcd, c.prefix, generous).ready()
	for ctx := inTime(t); len(c.candidates()) < 2 && ctx.Err() == nil; {
	}
	first := c.candidates()
	if len(first) != 2 {
		t.Fatalf("candidates: %v", first)
	}
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	c.curator = second
	c.leaves()
	if left := c.candidates(); len(left) != 1 || left[0] != first[1] {
		t.Errorf("candidates: %v after %v", left, first)
	}
	// Somebody takes its key away, as the end of its lease would: it stands again.
	if _, err := c.client().Delete(t.Context(), first[1]); err != nil {
		t.Fatal(err)
	}
	c.leaves()
}

// Who resigns is followed at once, and not only when its lease ends.
func TestResign(t *testing.T) {
	c := newCluster(t)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	// A busy machine may keep one from saying so in the time that it has.
	for range 10 {
		term, err := records.Campaign(inTime(t), "one", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		term.Resign()
		left := c.candidates()
		if len(left) == 0 {
			return
		}
		if _, err := c.client().Delete(t.Context(), left[0]); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("nobody is followed before its lease ends")
}

// What a curator decided that has lost the election without knowing it is not written.
func TestFencing(t *testing.T) {
	c := newCluster(t)
	one, two := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience}), store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	old, err := one.Campaign(inTime(t), "one", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Resign()
	drain := func(state *store.State) (*store.Change, error) {
		node := proto.CloneOf(state.Nodes[c.id])
		node.Generation++
		node.Drained = !node.Drained
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node}}, nil
	}
	if _, err := one.UpdateFenced(t.Context(), ritual{}, old.Fence(), drain); err != nil {
		t.Fatal(err)
	}
	won := make(chan *store.Term)
	go func() {
		term, err := two.Campaign(inTime(t), "two", patience)
		if err != nil {
			t.Error(err)
		}
		won <- term
	}()
	for ctx := inTime(t); len(c.candidates()) < 2 && ctx.Err() == nil; {
	}
	select {
	case <-won:
		t.Fatal("there are two stewards")
	default:
	}
	before, _ := c.stored()
	decided := make(chan struct{})
	result := make(chan error)
	go func() {
		first := true
		_, err := one.UpdateFenced(t.Context(), ritual{}, old.Fence(), func(state *store.State) (*store.Change, error) {
			if first {
				first = false
				decided <- struct{}{}
				<-decided
			}
			return drain(state)
		})
		result <- err
	}()
	<-decided
	// It has decided, and stops for a while in which its lease ends.
	if _, err := c.client().Delete(t.Context(), c.candidates()[0]); err != nil {
		t.Fatal(err)
	}
	present := <-won
	defer present.Resign()
	decided <- struct{}{}
	if err := <-result; !errors.Is(err, store.ErrFenced) {
		t.Errorf("the old one writes: %v", err)
	}
	if after, _ := c.stored(); after.Epoch != before.Epoch || after.Nodes[c.id].GetDrained() != before.Nodes[c.id].GetDrained() {
		t.Error("the old one has written")
	}
	if _, err := two.UpdateFenced(t.Context(), ritual{}, present.Fence(), drain); err != nil {
		t.Errorf("the present one: %v", err)
	}
	if _, err := two.UpdateFenced(t.Context(), ritual{}, nil, drain); !errors.Is(err, store.ErrFenced) {
		t.Errorf("without an election: %v", err)
	}
}

// A curator stops in time though its store is away, whether it has won the election or waits for it.
func TestStewardStopsWithoutAStore(t *testing.T) {
	own, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	impatient := func(config *server.Config) {
		generous(config)
		config.AnswerWithin = 4 * time.Second
	}
	c := newClusterOn(t, own, impatient)
	second := start(t, own, c.prefix, impatient).ready()
	own.Pause()
	for _, curator := range []*curator{c.curator, second} {
		if err := curator.stop(); err != nil {
			t.Error(err)
		}
	}
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
}

// A term that nobody could win ends with its context.
func TestCampaignEnds(t *testing.T) {
	c := newClusterOn(t, etcd, generous)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	for ctx := inTime(t); len(c.candidates()) < 1 && ctx.Err() == nil; {
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if term, err := records.Campaign(ctx, "late", patience); err == nil {
		term.Resign()
		t.Error("there are two stewards")
	}
	for ctx := inTime(t); len(c.candidates()) > 1; {
		if ctx.Err() != nil {
			t.Fatal("it still stands")
		}
	}
}
