package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// numbered is the name of one of many keys. Each instance has its own: the roles of a name share a prefix.
func (a *attempt) numbered(n int) []byte {
	return fmt.Appendf(nil, "%smany/%s/%05d", a.prefix(), a.start.GetInstanceId(), n)
}

// puts is a transaction that writes numbered keys on a lease; 0: on none.
func (a *attempt) puts(first, keys int, lease int64) *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	for n := first; n < first+keys; n++ {
		txn.Success = append(txn.Success, putOp(&pb.PutRequest{Key: a.numbered(n), Lease: lease}))
	}
	return txn
}

// removal deletes numbered keys.
func (a *attempt) removal(first, keys int) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: a.numbered(first), RangeEnd: a.numbered(first + keys)}
}

func putOp(put *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
}

func deleteOp(remove *pb.DeleteRangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: remove}}
}

func nestedOp(txn *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}
}

// atQuota reports whether a write was refused since its user has as much as it may.
func atQuota(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "bytes in the store")
}

// insist makes a call until it is not refused any more, for half a minute at most: who has written too fast has to wait, but not who has as much as it may.
func insist(call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for err = call(ctx); err != nil && status.Code(err) != codes.NotFound && !atQuota(err) && ctx.Err() == nil; err = call(ctx) {
	}
	return err
}

// fill writes numbered keys, as many at once as etcd takes.
func (a *attempt) fill(e *etcd, keys int) (err error) {
	const atOnce = 125
	for first := 0; first < keys && err == nil; first += atOnce {
		err = insist(func(ctx context.Context) error { return drop(e.Txn(ctx, a.puts(first, min(atOnce, keys-first), 0))) })
	}
	return err
}

// countMany has many keys counted again and again in transactions that write: each member does it while everybody's writes wait, and the answers have some bytes.
func countMany(a *attempt, e *etcd) {
	const keys = 10_000
	if err := a.fill(e, keys); err != nil {
		a.note("write 10,000 keys", say(err))
		return
	}
	defer func() {
		_ = insist(func(ctx context.Context) error { return drop(e.DeleteRange(ctx, a.removal(0, keys))) })
	}()
	counts := func(times int) *pb.TxnRequest {
		txn := reads(a.numbered(0), times)
		for _, op := range txn.GetSuccess() {
			op.GetRequestRange().RangeEnd, op.GetRequestRange().CountOnly = a.numbered(keys), true
		}
		return txn
	}
	put := putOp(&pb.PutRequest{Key: []byte(a.prefix() + "key")})
	nested := []*pb.RequestOp{nestedOp(counts(124)), nestedOp(counts(124)), nestedOp(counts(124))}
	hundreds := []*pb.TxnRequest{{Success: append([]*pb.RequestOp{put}, nested...)}, {Success: nested}}
	one := &pb.TxnRequest{Success: append([]*pb.RequestOp{put}, counts(1).GetSuccess()...)}
	a.rpc("a put and 372 counts of 10,000 keys in one transaction", func(ctx context.Context) error { return drop(e.Txn(ctx, hundreds[0])) })
	a.rpc("372 counts of 10,000 keys in nested transactions", func(ctx context.Context) error { return drop(e.Txn(ctx, hundreds[1])) })

	ctx, cancel := context.WithTimeout(context.Background(), a.lasts())
	defer cancel()
	var many, writing, reading atomic.Int64
	tally := func(made *atomic.Int64, counts int64, txn *pb.TxnRequest) {
		if _, err := e.Txn(ctx, txn); err == nil {
			made.Add(counts)
		}
	}
	began := time.Now()
	var counting sync.WaitGroup
	for range 32 {
		counting.Go(func() {
			for ctx.Err() == nil {
				tally(&many, 372, hundreds[0])
				tally(&many, 372, hundreds[1])
				tally(&writing, 1, one)
				tally(&reading, 16, counts(16))
			}
		})
	}
	counting.Wait()
	what := fmt.Sprintf("count 10,000 keys hundreds of times at once (%d counts), beside a put (%d), and without (%d)", many.Load(), writing.Load(), reading.Load())
	// What comes at once, twice since the store may start anew meanwhile, and what comes in the time.
	seconds := int64(time.Since(began).Seconds()) + 1
	if many.Load() > 0 || writing.Load() > 2000+60*seconds || reading.Load() > 1600+120*seconds {
		a.try(what, nil)
		return
	}
	a.note(what, "the others had to wait")
}

// deleteMany writes many keys and deletes them at once, again and again: each takes etcd some microseconds while everybody's writes wait.
func deleteMany(a *attempt, e *etcd) {
	const most, keys = 10_000, 20_000
	deleted := int64(0)
	began := time.Now()
	for round := 0; round == 0 || time.Since(began) < a.lasts(); round++ {
		if err := a.fill(e, keys); err != nil {
			a.note("write 20,000 keys", say(err))
			return
		}
		all := func(ctx context.Context) error { return drop(e.DeleteRange(ctx, a.removal(0, keys))) }
		halves := func(ctx context.Context) error {
			return drop(e.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp(a.removal(0, most)), deleteOp(a.removal(most, most))}}))
		}
		if a.rpc("delete 20,000 keys at once", all) || a.rpc("delete 20,000 keys in one transaction", halves) {
			return
		}
		for first := 0; first < keys; first += most {
			_ = insist(func(ctx context.Context) error {
				answer, err := e.DeleteRange(ctx, a.removal(first, most))
				deleted += answer.GetDeleted()
				return err
			})
		}
	}
	what := fmt.Sprintf("write keys, and delete 10,000 at once (%d in %s)", deleted, time.Since(began).Round(time.Second))
	// A key counts 1.2 KiB or more until it is gone again: what comes at once, twice since the store may start anew meanwhile, and what comes in the time.
	if deleted > 110_000+3_600*int64(time.Since(began).Seconds()) {
		a.try(what, nil)
		return
	}
	a.note(what, "the others had to wait")
}

// leaseWriters put keys on a lease at a time.
const leaseWriters = 32

// fillLease puts many keys on a lease, and writes them anew, in transactions as large as it may: etcd looks at all keys of a lease for each put on it. Then it ends the lease: etcd deletes
// all of them in one step. In all of this everybody's writes wait.
func fillLease(a *attempt, e *etcd) {
	began := time.Now()
	for round := 0; round == 0 || time.Since(began) < a.lasts(); round++ {
		var lease int64
		err := insist(func(ctx context.Context) error {
			granted, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
			lease = granted.GetID()
			return err
		})
		if err != nil {
			a.note("grant a lease", say(err))
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), min(a.lasts(), 10*time.Second))
		var next, size, end atomic.Int64
		size.Store(125)
		end.Store(20_000)
		on := make([]atomic.Bool, end.Load()+size.Load()) // which keys are
		var putting sync.WaitGroup
		for range leaseWriters {
			putting.Go(func() {
				for ctx.Err() == nil {
					keys := size.Load()
					first := (next.Add(keys) - keys) % end.Load()
					_, err := e.Txn(ctx, a.puts(int(first), int(keys), lease))
					switch refused := status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "lease"); {
					case err == nil:
						for n := range keys {
							on[first+n].Store(true)
						}
					case refused && keys > 1:
						size.CompareAndSwap(keys, keys/2)
					case refused:
						end.Store(max(1, min(first, end.Load()))) // the lease is full
					}
				}
			})
		}
		putting.Wait()
		cancel()
		_ = insist(func(ctx context.Context) error { return drop(e.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease})) })
		attached := 0
		for n := range on {
			if on[n].Load() {
				attached++
			}
		}
		what := fmt.Sprintf("put 20,000 keys on one lease, %d at once, and end it (%d keys)", size.Load(), attached)
		if attached > 2000 {
			a.try(what, nil)
			return
		}
		a.note(what, "the others were refused, or had to wait")
	}
}
