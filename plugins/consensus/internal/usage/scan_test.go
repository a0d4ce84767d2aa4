package usage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// changing changes what is stored while it is read.
type changing struct {
	mvcc.WatchableKV
	read func()
}

func (c changing) Read(mode mvcc.ReadTxMode, trace *traceutil.Trace) mvcc.TxnRead {
	c.read()
	return c.WatchableKV.Read(mode, trace)
}

// TestACountEndsWhileHistoryIsShort counts a store in which keys are written, deleted and put on leases all the time, and of whose history there are the last ten revisions only: a count takes hundreds.
func TestACountEndsWhileHistoryIsShort(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, &consensusv1.DesiredUser{ConsensusUser: "ant"}, &consensusv1.DesiredUser{ConsensusUser: "bee"})
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	// A request that is lost because the leader changes is made again.
	patiently := func(request func(context.Context) error) {
		t.Helper()
		storetest.Eventually(t, "a request is carried out", func() bool { return request(store.Root(storetest.Context(t))) == nil })
	}
	const keys, each = 16_000, 125
	key := func(n int) []byte {
		user := "ant"
		if n%keys >= keys/2 {
			user = "bee"
		}
		return fmt.Appendf(nil, "%s%06d", consensusv1.UserPrefix(user), n%keys)
	}
	for first := 0; first < keys; first += each {
		txn := &pb.TxnRequest{}
		for n := range each {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key(first + n)}}})
		}
		patiently(func(ctx context.Context) error { _, err := s.Server().Txn(ctx, txn); return err })
	}
	lease := numbers.NewLease(s.Number("ant"))
	patiently(func(ctx context.Context) error {
		_, err := s.Server().LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: 3600})
		if errors.Is(err, rpctypes.ErrLeaseExist) {
			return nil
		}
		return err
	})
	reads := 0
	change := func() {
		// Between two changes, there is a look at what the first one has changed, and a page.
		if reads++; reads%4 != 0 || t.Failed() {
			return
		}
		n := reads / 4
		if n == keys { // as often as there are keys, and 32 of these are in a page
			t.Error("the count does not end")
			cancel()
			return
		}
		patiently(func(ctx context.Context) (err error) {
			switch at := key(n * 7919); n % 4 {
			case 0:
				_, err = s.Server().DeleteRange(ctx, &pb.DeleteRangeRequest{Key: at})
			case 1:
				_, err = s.Server().Put(ctx, &pb.PutRequest{Key: at, Value: []byte("on a lease"), Lease: lease})
			default:
				_, err = s.Server().Put(ctx, &pb.PutRequest{Key: at, Value: []byte(strings.Repeat("x", n%100))})
			}
			return err
		})
		patiently(func(ctx context.Context) error {
			_, err := s.Client().Compact(ctx, s.Server().KV().Rev()-10)
			if errors.Is(err, rpctypes.ErrCompacted) {
				return nil
			}
			return err
		})
	}
	counter, err := usage.Open(ctx, usage.Config{
		Log: storetest.Log(t), KV: changing{s.Server().Watchable(), change}, ClusterUser: "curator", Numbers: s.Numbers,
		Leases: func() ([]int64, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if reads < keys/32 {
		t.Fatalf("%d keys were counted with %d reads", keys, reads)
	}
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		if err := counter.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	// What was changed while it was counted is told of again.
	storetest.Eventually(t, "all is counted", func() bool { return counter.Revision() >= s.Server().KV().Rev() })
	sums, attached, _, err := usage.Sum(storetest.Context(t), s.Server().KV())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"ant", "bee"} {
		if got, want := counter.Of(user).Bytes, sums[user].Bytes; got != want {
			t.Errorf("%s is counted to have %d bytes, and has %d", user, got, want)
		}
	}
	if got := counter.Attached(); !maps.Equal(got, attached) {
		t.Errorf("on leases are counted %v keys, and are %v", got, attached)
	}
}
