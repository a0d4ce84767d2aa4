package usage_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// weighed is a store that adds up the keys and values which are read of it, by whom they are then sorted and left out.
type weighed struct {
	mvcc.KV
	bytes int
}

type weighedRead struct {
	mvcc.TxnRead
	by *weighed
}

func (w *weighed) Read(mode mvcc.ReadTxMode, trace *traceutil.Trace) mvcc.TxnRead {
	return weighedRead{w.KV.Read(mode, trace), w}
}

func (r weighedRead) Range(ctx context.Context, key, end []byte, options mvcc.RangeOptions) (*mvcc.RangeResult, error) {
	found, err := r.TxnRead.Range(ctx, key, end, options)
	if err == nil {
		for _, kv := range found.KVs {
			r.by.bytes += proto.Size(kv)
		}
	}
	return found, err
}

// TestNothingIsReadThatIsNotReckoned reads in every way that a user may, and compares what etcd reads for it with what was reckoned before: what may be read at most, and what is read.
func TestNothingIsReadThatIsNotReckoned(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, &consensusv1.DesiredUser{ConsensusUser: "ant"})
	ctx := storetest.Context(t)
	ant := as{s, "ant"}
	names := []string{"a", "b", "b/c", "b/d", "c", "d", "e", "f"}
	first := s.Server().KV().Rev()
	const puts = 40
	for n := range puts { // values that become larger and smaller again, so that the past matters
		if err := ant.put(ctx, names[n%len(names)], strings.Repeat("x", n*(puts-n)*10)); err != nil {
			t.Fatal(err)
		}
	}
	key := func(t *rapid.T) []byte {
		return []byte(consensusv1.UserPrefix("ant") + rapid.SampledFrom(append(names, "")).Draw(t, "key"))
	}
	ended := func(t *rapid.T) (from, end []byte) {
		from = key(t)
		switch rapid.IntRange(0, 2).Draw(t, "end") {
		case 1:
			end = key(t)
		case 2:
			end = []byte("/reeve/users/ant0")
		}
		return from, end
	}
	revision := func(t *rapid.T, what string) int64 {
		if rapid.Bool().Draw(t, "any "+what) {
			return 0
		}
		return rapid.Int64Range(first+1, first+puts).Draw(t, what)
	}
	ranges := func(t *rapid.T) *pb.RangeRequest {
		from, end := ended(t)
		return &pb.RangeRequest{
			Key: from, RangeEnd: end, Limit: rapid.Int64Range(0, 4).Draw(t, "limit"), Revision: revision(t, "revision"),
			SortOrder:  pb.RangeRequest_SortOrder(rapid.IntRange(0, 2).Draw(t, "order")),
			SortTarget: pb.RangeRequest_SortTarget(rapid.IntRange(0, 4).Draw(t, "target")),
			KeysOnly:   rapid.Bool().Draw(t, "keys only"), CountOnly: rapid.IntRange(0, 7).Draw(t, "count only") == 0,
			MinModRevision: revision(t, "least modified"), MaxCreateRevision: revision(t, "last created"),
		}
	}
	var txns func(t *rapid.T, depth int) *pb.TxnRequest
	ops := func(t *rapid.T, depth int) (all []*pb.RequestOp) {
		for range rapid.IntRange(0, 3).Draw(t, "operations") {
			if depth > 0 && rapid.Bool().Draw(t, "nested") {
				all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txns(t, depth-1)}})
				continue
			}
			all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: ranges(t)}})
		}
		return all
	}
	txns = func(t *rapid.T, depth int) *pb.TxnRequest {
		made := &pb.TxnRequest{Success: ops(t, depth), Failure: ops(t, depth)}
		if rapid.Bool().Draw(t, "compare") {
			from, end := ended(t)
			made.Compare = []*pb.Compare{{Key: from, RangeEnd: end, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}}
		}
		return made
	}
	one := func(t *rapid.T) {
		for s.Counted() < s.Server().KV().Rev() {
			if ctx.Err() != nil {
				t.Fatal("the store is not counted")
			}
		}
		var request proto.Message
		var ask func() error
		all := &weighed{KV: s.Server().KV()}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			r := ranges(t)
			request, ask = r, func() error {
				_, _, err := txn.Range(ctx, zap.NewNop(), all, r, false)
				return err
			}
		case 1:
			r := txns(t, 2)
			request, ask = r, func() error {
				_, _, err := txn.Txn(ctx, zap.NewNop(), r, false, all, nil, false)
				return err
			}
		case 2:
			r := &pb.PutRequest{Key: key(t), Value: make([]byte, rapid.IntRange(0, 5000).Draw(t, "value")), PrevKv: rapid.Bool().Draw(t, "former")}
			request, ask = r, func() error {
				answer, err := s.Server().Put(ant.ctx(ctx), r)
				all.bytes = proto.Size(answer.GetPrevKv())
				return err
			}
		case 3:
			r := &pb.DeleteRangeRequest{Key: key(t), PrevKv: true}
			request, ask = r, func() error {
				answer, err := s.Server().DeleteRange(ant.ctx(ctx), r)
				for _, kv := range answer.GetPrevKvs() {
					all.bytes += proto.Size(kv)
				}
				return err
			}
		}
		most := s.MostRead("ant", request)
		reckoned, err := s.Reads(ctx, "ant", request, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		if most < reckoned {
			t.Errorf("it may read %d bytes, and reads %d: %v", most, reckoned, request)
		}
		if err := ask(); err != nil {
			return // a time-out, say
		}
		if int64(all.bytes) > reckoned {
			t.Errorf("%d bytes were read, and %d reckoned: %v", all.bytes, reckoned, request)
		}
	}
	rapid.Check(t, func(t *rapid.T) { t.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "request": one}) })
}

// slow is a store whose keys are read when the test lets them.
type slow struct {
	mvcc.WatchableKV
	reading chan chan struct{}
}

type slowRead struct {
	mvcc.TxnRead
	by slow
}

func (s slow) Read(mvcc.ReadTxMode, *traceutil.Trace) mvcc.TxnRead { return slowRead{by: s} }

func (slowRead) End() {}

func (r slowRead) Range(context.Context, []byte, []byte, mvcc.RangeOptions) (*mvcc.RangeResult, error) {
	goOn := make(chan struct{})
	r.by.reading <- goOn
	<-goOn
	return &mvcc.RangeResult{}, nil
}

// TestOneLooksAtATime has two look at many keys, of which the second waits, or is given up. A few keys are looked at beside them.
func TestOneLooksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := slow{reading: make(chan chan struct{}, 100)}
		c := usage.Stored(kv)
		look := func(ctx context.Context, keys int) <-chan error {
			request := &pb.TxnRequest{}
			for range keys {
				request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("/reeve/users/ant/a")}}})
			}
			got := make(chan error, 1)
			go func() {
				_, err := c.Reads(ctx, "ant", request, 1<<20)
				got <- err
			}()
			synctest.Wait()
			return got
		}
		first := look(t.Context(), 9)
		given, cancel := context.WithCancel(t.Context())
		second, third := look(given, 9), look(t.Context(), 9)
		few := look(t.Context(), 2)
		if len(kv.reading) != 2 {
			t.Errorf("%d look at the same time, want the first and the one with few keys", len(kv.reading))
		}
		cancel()
		if err := <-second; err == nil {
			t.Error("one that was given up goes on")
		}
		go func() {
			for goOn := range kv.reading {
				close(goOn)
			}
		}()
		for _, looked := range []<-chan error{first, third, few} {
			if err := <-looked; err != nil {
				t.Error(err)
			}
		}
		close(kv.reading)
	})
}
