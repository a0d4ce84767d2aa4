package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// lossy is a KV whose leader dies under some transactions.
type lossy struct {
	clientv3.KV
	// before is called before a transaction is made, after when it was. An error is the answer; errLost: there is none.
	before, after func(writes bool) error
}

var (
	errLost = errors.New("nobody answers")
	errCut  = status.Error(codes.Unavailable, "error reading from server: EOF")
)

func (l *lossy) Txn(ctx context.Context) clientv3.Txn {
	if l.KV == nil { // none is made
		return &lossyTxn{ctx: ctx, of: l}
	}
	return &lossyTxn{Txn: l.KV.Txn(ctx), ctx: ctx, of: l}
}

type lossyTxn struct {
	clientv3.Txn
	ctx    context.Context
	of     *lossy
	writes bool
}

func (t *lossyTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.writes = true
	if t.Txn != nil {
		t.Txn = t.Txn.If(compares...)
	}
	return t
}

func (t *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	if t.Txn != nil {
		t.Txn = t.Txn.Then(ops...)
	}
	return t
}

func (t *lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	if t.Txn != nil {
		t.Txn = t.Txn.Else(ops...)
	}
	return t
}

func (t *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	answer := func(err error) error {
		if errors.Is(err, errLost) {
			<-t.ctx.Done()
			return t.ctx.Err()
		}
		return err
	}
	if err := t.of.before(t.writes); err != nil {
		return nil, answer(err)
	}
	response, err := t.Txn.Commit()
	if err == nil {
		err = answer(t.of.after(t.writes))
	}
	return response, err
}

// TestLeaderDiesUnderAChange has one change be made, once, whatever becomes of its transactions.
func TestLeaderDiesUnderAChange(t *testing.T) {
	fine := func(bool) error { return nil }
	for name, test := range map[string]struct {
		before, after func(writes bool, n int64) error
	}{
		"the first try is lost": {before: func(writes bool, n int64) error {
			if writes && n == 1 {
				return errLost
			}
			return nil
		}},
		"the answer to the first try is lost": {after: func(writes bool, n int64) error {
			if writes && n == 1 {
				return errLost
			}
			return nil
		}},
		"the leader changes after the first try": {after: func(writes bool, n int64) error {
			if writes && n == 1 {
				return rpctypes.ErrTimeoutDueToLeaderFail
			}
			return nil
		}},
		"the connection breaks under the first try": {before: func(writes bool, n int64) error {
			if writes && n == 1 {
				return errCut
			}
			return nil
		}},
		"the connection breaks before the first try is answered": {after: func(writes bool, n int64) error {
			if writes && n == 1 {
				return errCut
			}
			return nil
		}},
		"the connection breaks under reads": {before: func(writes bool, n int64) error {
			if !writes && n <= 2 {
				return errCut
			}
			return nil
		}},
		"the leader changes under reads": {before: func(writes bool, n int64) error {
			if !writes && n <= 2 {
				return rpctypes.ErrLeaderChanged
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first, client, made := created(t)
			var reads, writes atomic.Int64
			count := func(each func(bool, int64) error, count bool) func(bool) error {
				if each == nil && !count {
					return fine
				}
				return func(write bool) error {
					counter := &reads
					if write {
						counter = &writes
					}
					n := counter.Load()
					if count {
						n = counter.Add(1)
					}
					if each == nil {
						return nil
					}
					return each(write, n)
				}
			}
			unsteady := clientv3.NewCtxClient(t.Context())
			unsteady.KV = &lossy{KV: client.KV, before: count(test.before, true), after: count(test.after, false)}
			s := store.New(store.Config{Client: unsteady, ClusterUser: "curator", AnswerWithin: time.Minute})
			var caller call
			before, err := first.ReadRecords(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			after, err := s.Update(t.Context(), &caller, func(state *store.State) (*store.Change, error) {
				node := state.Nodes[made.Node.GetId()]
				return &store.Change{Nodes: []*clusterv1.NodeRecord{{
					Id: node.GetId(), PublicKey: node.GetPublicKey(), State: node.GetState(), Generation: node.GetGeneration() + 1,
				}}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := first.ReadRecords(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if after.Epoch != stored.Epoch || stored.Epoch != before.Epoch+1 || caller.kept != 1 || stored.Nodes[made.Node.GetId()].GetGeneration() != 2 {
				t.Errorf("epoch %d after %d, and %d is said; kept %d times; %v", stored.Epoch, before.Epoch, after.Epoch, caller.kept, stored.Nodes)
			}
			record, err := client.Get(t.Context(), "epoch")
			if err != nil {
				t.Fatal(err)
			}
			if len(record.Kvs) == 1 && record.Kvs[0].ModRevision != after.Revision {
				t.Errorf("revision %d, and %d is said", record.Kvs[0].ModRevision, after.Revision)
			}
			if entries, _, err := first.ListAudit(t.Context(), 0, 10); err != nil || len(entries) != 1 {
				t.Errorf("the audit log holds %v, %v", entries, err)
			}
		})
	}
}

// TestUnbegunChange has whoever asks a curator whose member of the store stays away be told that nothing was done.
func TestUnbegunChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsteady := clientv3.NewCtxClient(t.Context())
		unsteady.KV = &lossy{before: func(bool) error { return errCut }}
		s := store.New(store.Config{Client: unsteady, ClusterUser: "curator"})
		_, err := s.Update(t.Context(), &call{}, func(*store.State) (*store.Change, error) { panic("nothing is known to decide on") })
		var unavailable *store.UnavailableError
		if !errors.As(err, &unavailable) || !unavailable.Unbegun {
			t.Errorf("%v", err)
		}
	})
}

// TestUnansweredChangeThatAnotherOneOvertook is decided anew.
func TestUnansweredChangeThatAnotherOneOvertook(t *testing.T) {
	first, client, made := created(t)
	decisions, lost := 0, false
	set := func(s *store.Store, version string) error {
		_, err := s.Update(t.Context(), &call{}, func(state *store.State) (*store.Change, error) {
			decisions++
			node := state.Nodes[made.Node.GetId()]
			return &store.Change{Nodes: []*clusterv1.NodeRecord{{
				Id: node.GetId(), PublicKey: node.GetPublicKey(), State: node.GetState(), Generation: node.GetGeneration() + 1, Labels: map[string]string{"by": version},
			}}}, nil
		})
		return err
	}
	unsteady := clientv3.NewCtxClient(t.Context())
	unsteady.KV = &lossy{KV: client.KV, after: func(bool) error { return nil }, before: func(writes bool) error {
		if !writes || lost {
			return nil
		}
		lost = true
		if err := set(first, "other"); err != nil {
			t.Error(err)
		}
		return errLost
	}}
	if err := set(store.New(store.Config{Client: unsteady, ClusterUser: "curator", AnswerWithin: time.Minute}), "this"); err != nil {
		t.Fatal(err)
	}
	stored, err := first.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if node := stored.Nodes[made.Node.GetId()]; node.GetGeneration() != 3 || node.GetLabels()["by"] != "this" || decisions != 3 {
		t.Errorf("%v after %d decisions", node, decisions)
	}
}

// TestLeaderChangesUnderReads has whoever reads be answered, whatever it is that they read.
func TestLeaderChangesUnderReads(t *testing.T) {
	_, client, made := created(t)
	for name, read := range map[string]func(*store.Store) error{
		"a node": func(s *store.Store) error {
			_, err := s.ReadNode(t.Context(), made.Node.GetId())
			return err
		},
		"a heartbeat": func(s *store.Store) error {
			_, err := s.Beat(t.Context(), made.Node.GetId(), time.Hour, clientv3.NoLease) // others count leases
			return err
		},
		"the key of the CA": func(s *store.Store) error {
			_, _, err := s.ReadSigningKey(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			unsteady := clientv3.NewCtxClient(t.Context())
			unsteady.Lease = client.Lease
			unsteady.KV = &lossy{KV: client.KV, after: func(bool) error { return nil }, before: func(writes bool) error {
				if writes {
					return nil
				}
				if reads++; reads == 1 {
					return rpctypes.ErrLeaderChanged
				}
				return nil
			}}
			if err := read(store.New(store.Config{Client: unsteady, ClusterUser: "curator", AnswerWithin: time.Minute})); err != nil || reads != 2 {
				t.Errorf("%v after %d reads", err, reads)
			}
		})
	}
}

// absent is a KV that lets everybody wait in vain, though not as long as they would, and that takes note of how long the last one would have waited.
type absent struct {
	lossy
	away     atomic.Bool
	patience time.Duration
}

func (a *absent) Txn(ctx context.Context) clientv3.Txn {
	deadline, _ := ctx.Deadline()
	a.patience = time.Until(deadline)
	return a.lossy.Txn(ctx)
}

// TestAwayStoreIsSaidSoon has a store go away for longer than any election takes: the first call waits for it as long as an exchange may take, those after it are told soon, so
// that their callers ask another curator, and when the store is back everything is as before.
func TestAwayStoreIsSaidSoon(t *testing.T) {
	const within = time.Hour
	_, client, _ := created(t)
	kv := &absent{lossy: lossy{KV: client.KV, after: func(bool) error { return nil }}}
	kv.before = func(bool) error {
		if kv.away.Load() {
			return context.DeadlineExceeded
		}
		return nil
	}
	asked := clientv3.NewCtxClient(t.Context())
	asked.KV = kv
	s := store.New(store.Config{Client: asked, ClusterUser: "curator", AnswerWithin: within})
	reads := map[string]func() error{
		"records": func() error { _, err := s.ReadRecords(t.Context()); return err },
		"node":    func() error { _, err := s.ReadNode(t.Context(), "reeve-00"); return err },
		"probe":   func() error { _, err := s.Probe(t.Context()); return err },
	}
	expect := func(what, read string, away, long bool) {
		t.Helper()
		kv.away.Store(away)
		err := reads[read]()
		var unavailable *store.UnavailableError
		if errors.As(err, &unavailable) != away || !away && err != nil {
			t.Errorf("%s: %s: %v", what, read, err)
		}
		if got := kv.patience > within/2; got != long {
			t.Errorf("%s: %s waits for %v at most", what, read, kv.patience)
		}
	}
	for range 2 {
		expect("a store that is there", "records", false, true)
		expect("a store that may be electing a leader", "records", true, true)
		expect("a store that was waited for in vain", "records", true, false)
		expect("a store that was waited for in vain", "node", true, false)
		expect("a store that was waited for in vain", "probe", true, true)
		expect("a store that is back", "probe", false, true)
	}
	expect("a store that is back", "node", false, true)
}
