package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// appended writes n entries to a shelf, in as few transactions as may be.
func appended(t *testing.T, s *store.Store, shelf store.AuditShelf, name string, n int) {
	t.Helper()
	var records []store.AuditRecord
	for i := range n {
		records = append(records, store.AuditRecord{Shelf: shelf, Entry: &clusterv1.AuditEntry{Rpc: fmt.Sprintf("%s%d", name, i)}})
		if len(records) == store.AuditBatch || i == n-1 {
			if err := s.AppendAudit(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			records = nil
		}
	}
}

func count(t *testing.T, client *clientv3.Client, prefix string) int {
	t.Helper()
	got, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return int(got.Count)
}

func TestAuditIsInOneOrder(t *testing.T) {
	s, _, first := created(t)
	appended(t, s, store.AuditCalls, "a", 2*store.AuditBatch+50)
	if _, err := s.Update(t.Context(), new(call), func(state *store.State) (*store.Change, error) {
		changed := proto.CloneOf(state.Nodes[first.Node.GetId()])
		changed.Generation++
		return &store.Change{Nodes: []*clusterv1.NodeRecord{changed}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	appended(t, s, store.AuditUnproven, "b", store.AuditBatch)
	var want []string
	for i := range store.AuditBatch {
		want = append(want, fmt.Sprintf("b%d", store.AuditBatch-1-i))
	}
	want = append(want, "Test")
	for i := range 2*store.AuditBatch + 50 {
		want = append(want, fmt.Sprintf("a%d", 2*store.AuditBatch+49-i))
	}
	for _, limit := range []int{1, 3, 99, 100, 101, 150, 1000} {
		at, before := 0, uint64(0)
		for more := true; more; {
			var entries []*clusterv1.AuditEntry
			var err error
			if entries, more, err = s.ListAudit(t.Context(), before, limit); err != nil {
				t.Fatal(err)
			}
			if len(entries) == 0 || len(entries) > limit {
				t.Fatalf("%d entries at once, at most %d", len(entries), limit)
			}
			for _, entry := range entries {
				if at == len(want) || entry.GetRpc() != want[at] || before != 0 && entry.GetSequence() >= before {
					t.Fatalf("limit %d: %s with number %d comes at place %d, after %d", limit, entry.GetRpc(), entry.GetSequence(), at, before)
				}
				at, before = at+1, entry.GetSequence()
			}
		}
		if at != len(want) {
			t.Errorf("limit %d: %d entries of %d", limit, at, len(want))
		}
	}
}

func TestAuditIsBounded(t *testing.T) {
	s, client, _ := created(t)
	appended(t, s, store.AuditCalls, "c", 50)
	most := store.AuditUnproven.Most()
	appended(t, s, store.AuditUnproven, "u", most*95/100)
	if removed, err := s.TrimAudit(t.Context(), store.AuditUnproven); err != nil || removed != 0 {
		t.Fatalf("with room: %d removed, %v", removed, err)
	}
	// By a curator that has just started: what it writes first is not the oldest.
	appended(t, store.New(store.Config{Client: client, AnswerWithin: time.Minute}), store.AuditUnproven, "v", 20)
	removed, err := s.TrimAudit(t.Context(), store.AuditUnproven)
	if err != nil || count(t, client, "audit/unproven/") != most*90/100 || int(removed) != most*95/100+20-most*90/100 {
		t.Fatalf("%d removed, %d left, %v", removed, count(t, client, "audit/unproven/"), err)
	}
	if count(t, client, "audit/call/") != 50 {
		t.Error("the calls of others were removed")
	}
	entries, more, err := s.ListAudit(t.Context(), 0, 1000)
	if err != nil || more || len(entries) != 50+most*90/100 || entries[0].GetRpc() != "v19" {
		t.Fatalf("%d entries, the newest %s, %v", len(entries), entries[0].GetRpc(), err)
	}
	if oldest := entries[most*90/100-1].GetRpc(); oldest != fmt.Sprintf("u%d", removed) {
		t.Errorf("the oldest that is left is %s, and %d were removed", oldest, removed)
	}
	all := 0
	for _, shelf := range store.AuditShelves {
		all += shelf.Most()
	}
	if all != 10_000 {
		t.Errorf("all shelves hold %d entries", all)
	}
}

// Who changes all the time pushes out entries of the same kind of their own, and nothing else: not what others did, nor what they did otherwise. Machines are one, however many there are.
func TestNobodyPushesOutWhatOthersDid(t *testing.T) {
	s, client, _ := created(t)
	most := store.AuditChanges.Most()
	var records []store.AuditRecord
	keep := func(entries int, entry *clusterv1.AuditEntry) {
		for n := range entries {
			next := proto.CloneOf(entry)
			if entry.GetKind() == clusterv1.Caller_CALLER_NEWCOMER {
				next.Caller += fmt.Sprint(n)
			}
			next.Reason = fmt.Sprint(n)
			records = append(records, store.AuditRecord{Shelf: store.AuditChanges, Entry: next})
		}
	}
	owner, otto, machine := clusterv1.Caller_CALLER_OWNER, clusterv1.Caller_CALLER_OPERATOR, clusterv1.Caller_CALLER_NEWCOMER
	keep(20, &clusterv1.AuditEntry{Caller: "owner", Kind: owner, Rpc: "SetLabels"})
	keep(20, &clusterv1.AuditEntry{Caller: "operator otto", Kind: otto, Rpc: "AddRole"})
	keep(most/2, &clusterv1.AuditEntry{Caller: "machine ", Kind: machine, Rpc: "Register"})
	keep(most/2, &clusterv1.AuditEntry{Caller: "operator otto", Kind: otto, Rpc: "SetLabels"})
	for part := range slices.Chunk(records, store.AuditBatch) {
		if err := s.AppendAudit(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.TrimAudit(t.Context(), store.AuditChanges); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), "audit/change/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != most*90/100 {
		t.Fatalf("%d entries stay, %v", len(got.Kvs), err)
	}
	stay, oldest := make(map[string]int), make(map[string]string)
	for _, kv := range got.Kvs {
		entry := new(clusterv1.AuditEntry)
		if err := proto.Unmarshal(kv.Value, entry); err != nil {
			t.Fatal(err)
		}
		of := entry.GetKind().String() + " " + entry.GetRpc()
		if stay[of]++; stay[of] == 1 {
			oldest[of] = entry.GetReason()
		}
	}
	half := (most*90/100 - 40) / 2
	if want := map[string]int{"CALLER_OWNER SetLabels": 20, "CALLER_OPERATOR AddRole": 20, "CALLER_NEWCOMER Register": half, "CALLER_OPERATOR SetLabels": half}; !maps.Equal(stay, want) {
		t.Errorf("there stay %v, want %v", stay, want)
	}
	for of, stays := range stay {
		if first := map[bool]int{true: 0, false: most/2 - half}[stays == 20]; oldest[of] != fmt.Sprint(first) {
			t.Errorf("the oldest of %s that stays is %s, want %d", of, oldest[of], first)
		}
	}
}

// A change and its entry are one: neither is without the other.
func TestChangeAndEntryAreOne(t *testing.T) {
	s, client, first := created(t)
	change := func(state *store.State) (*store.Change, error) {
		changed := proto.CloneOf(state.Nodes[first.Node.GetId()])
		changed.Generation++
		return &store.Change{Nodes: []*clusterv1.NodeRecord{changed}}, nil
	}
	by := new(call)
	state, err := s.Update(t.Context(), by, change)
	if err != nil || by.kept != 1 {
		t.Fatalf("kept %d times, %v", by.kept, err)
	}
	entry, err := client.Get(t.Context(), "audit/change/", clientv3.WithPrefix())
	if err != nil || len(entry.Kvs) != 1 || entry.Kvs[0].CreateRevision != state.Revision {
		t.Errorf("the change is at %d, the entry is %v, %v", state.Revision, entry, err)
	}
	for name, decide := range map[string]func(*store.State) (*store.Change, error){
		"an error":  func(*store.State) (*store.Change, error) { return nil, errors.New("no") },
		"no change": func(*store.State) (*store.Change, error) { return nil, nil },
	} {
		if _, err := s.Update(t.Context(), by, decide); (err != nil) != (name == "an error") || by.kept != 1 || count(t, client, "audit/") != 1 {
			t.Errorf("%s: kept %d times, %v", name, by.kept, err)
		}
	}
	after, err := s.Preview(t.Context(), change)
	if err != nil || after.Nodes[first.Node.GetId()].GetGeneration() != 3 || after.Epoch != state.Epoch+1 {
		t.Errorf("Preview: %v, %v", after, err)
	}
	if _, err := s.Update(t.Context(), unaudited{}, change); err == nil {
		t.Error("a change was made that nobody knows of")
	}
	read, err := s.ReadRecords(t.Context())
	if err != nil || read.Epoch != state.Epoch || read.Nodes[first.Node.GetId()].GetGeneration() != 2 || count(t, client, "audit/") != 1 {
		t.Errorf("epoch %d, then %d, %d entries, %v", state.Epoch, read.Epoch, count(t, client, "audit/"), err)
	}
}

type unaudited struct{}

func (unaudited) Entry() *clusterv1.AuditEntry { return nil }
func (unaudited) Kept()                        {}

// The audit log is no part of the state, and does not wake those who watch it.
func TestAuditIsNotWatched(t *testing.T) {
	s, _, first := created(t)
	before, err := s.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watched := s.Watch(t.Context(), before.Revision)
	appended(t, s, store.AuditCalls, "a", 3)
	after, err := s.ReadAll(t.Context())
	if err != nil || len(after.Nodes) != 1 || len(after.Damaged) != 0 {
		t.Errorf("read %v, %v", after, err)
	}
	if err := s.PutStatus(t.Context(), &clusterv1.NodeStatus{NodeId: first.Node.GetId()}); err != nil {
		t.Fatal(err)
	}
	response := <-watched
	if len(response.Events) != 1 || string(response.Events[0].Kv.Key) != "status/"+first.Node.GetId() {
		t.Errorf("watched %v", response.Events)
	}
}

// A store without a cluster stays empty, so that one can be made in it.
func TestNoAuditWithoutACluster(t *testing.T) {
	s, client := open(t)
	err := s.AppendAudit(t.Context(), []store.AuditRecord{{Shelf: store.AuditCalls, Entry: new(clusterv1.AuditEntry)}})
	if !errors.Is(err, store.ErrNoCluster) || count(t, client, "") != 0 {
		t.Errorf("AppendAudit: %v, %d keys", err, count(t, client, ""))
	}
	entries, more, err := s.ListAudit(t.Context(), 0, 10)
	if err != nil || more || len(entries) != 0 {
		t.Errorf("ListAudit: %v, %t, %v", entries, more, err)
	}
}

func TestDamagedEntry(t *testing.T) {
	s, client, _ := created(t)
	for _, key := range []string{"audit/call/x", "audit/call/0000-ff-05", "audit/call/0000-ff-999", "audit/other"} {
		if _, err := client.Put(t.Context(), key, "\xff"); err != nil {
			t.Fatal(err)
		}
	}
	entries, _, err := s.ListAudit(t.Context(), 0, 10)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, entry := range entries {
		if entry.GetReason() == "" || entry.GetSequence() == 0 {
			t.Errorf("%v", entry)
		}
	}
}

func TestOperatorRecords(t *testing.T) {
	s, client, _ := created(t)
	update := func(change *store.Change) *store.State {
		t.Helper()
		state, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return change, nil })
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	bob, alice := operator(t, "bob"), operator(t, "alice")
	if state := update(&store.Change{Operators: []*clusterv1.Operator{bob, alice}}); state.Epoch != 2 || len(state.Operators) != 2 || state.OperatorList()[0] != alice {
		t.Errorf("epoch %d, %v", state.Epoch, state.Operators)
	}
	for name, read := range map[string]func() (*store.State, error){
		"ReadOperator":  func() (*store.State, error) { return s.ReadOperator(t.Context(), "alice") },
		"ReadOperators": func() (*store.State, error) { return s.ReadOperators(t.Context()) },
		"ReadRecords":   func() (*store.State, error) { return s.ReadRecords(t.Context()) },
		"ReadAll":       func() (*store.State, error) { return s.ReadAll(t.Context()) },
	} {
		state, err := read()
		if err != nil || !proto.Equal(state.Operators["alice"], alice) || (state.Operators["bob"] == nil) != (name == "ReadOperator") {
			t.Errorf("%s: %v, %v", name, state, err)
		}
	}
	if state := update(&store.Change{Revoked: []string{"alice"}}); state.Epoch != 3 || len(state.Operators) != 1 {
		t.Errorf("epoch %d, %v", state.Epoch, state.Operators)
	}
	if count(t, client, "operators/") != 1 {
		t.Error("the record is still there")
	}
	for name, spoil := range map[string]func(*clusterv1.Operator){
		"another name": func(o *clusterv1.Operator) { o.Name = "carl" },
		"no ID":        func(o *clusterv1.Operator) { o.Id = "" },
		"a short key":  func(o *clusterv1.Operator) { o.PublicKey = o.PublicKey[1:] },
		"no role":      func(o *clusterv1.Operator) { o.Role = 0 },
		"a later role": func(o *clusterv1.Operator) { o.Role = 9 },
	} {
		spoiled := operator(t, "eve")
		spoil(spoiled)
		value, err := store.Encode(spoiled)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), "operators/eve", value); err != nil {
			t.Fatal(err)
		}
		var damaged *store.RecordError
		if _, err := s.ReadOperator(t.Context(), "eve"); !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.ReadOperator(t.Context(), "bob"); err != nil {
		t.Errorf("another operator, with a damaged one: %v", err)
	}
}

// crowded counts who reads at the same time.
type crowded struct {
	clientv3.KV
	now, most atomic.Int64
}

func (c *crowded) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	return c.KV.Get(ctx, key, options...)
}

// However many read the log, the store has it in its memory only a few times.
func TestFewReadTheAuditLogAtOnce(t *testing.T) {
	made, client, _ := created(t)
	appended(t, made, store.AuditCalls, "a", 10*store.AuditBatch)
	watched := &crowded{KV: client.KV}
	client.KV = watched
	// How long the last of so many waits is the machine's matter, not this test's.
	s := store.New(store.Config{Client: client, AnswerWithin: time.Minute})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if entries, _, err := s.ListAudit(t.Context(), 0, 10); err != nil || len(entries) != 10 {
				t.Errorf("%d entries, %v", len(entries), err)
			}
		})
	}
	group.Wait()
	if most := watched.most.Load(); most > 2 {
		t.Errorf("%d read it at once", most)
	}
}
