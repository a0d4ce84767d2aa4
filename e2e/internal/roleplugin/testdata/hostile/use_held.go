package main

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// beatLease keeps a lease alive that has some keys, and asks for it, all the time: each time etcd looks at all of them.
func beatLease(a *attempt, e *etcd) {
	const atOnce, keys, beats = 50, 500, 100
	var lease int64
	err := insist(func(ctx context.Context) error {
		granted, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		lease = granted.GetID()
		return err
	})
	for first := 0; first < keys && err == nil; first += atOnce {
		err = insist(func(ctx context.Context) error { return drop(e.Txn(ctx, a.puts(first, atOnce, lease))) })
	}
	if err != nil {
		a.result.Values["works"] = say(err)
		return
	}
	defer func() {
		_ = insist(func(ctx context.Context) error { return drop(e.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease})) })
	}()
	a.attack(
		pace{fmt.Sprintf("keep a lease with %d keys alive %d times", keys, beats), 16, 6, 3, func(ctx context.Context) error { return keepAlive(ctx, e, lease, beats) }},
		pace{fmt.Sprintf("ask for a lease with %d keys", keys), 16, 500, 260, func(ctx context.Context) error {
			told, err := e.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
			if err == nil && told.GetTTL() <= 0 {
				return errNoLease
			}
			return err
		}})
}

// atItsQuota uses up what it may store, and then asks for more in transactions that overwrite its largest values, all the time: whether it has less afterwards is looked up in these.
func atItsQuota(a *attempt, e *etcd) {
	large := func(n int) []byte { return fmt.Appendf(nil, "%slarge/%d", a.prefix(), n) }
	put := func(key []byte, size int) error {
		return insist(func(ctx context.Context) error {
			return drop(e.Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, size)}))
		})
	}
	const values, little = 3, 4 << 10
	txn := &pb.TxnRequest{Failure: []*pb.RequestOp{putOp(&pb.PutRequest{Key: []byte(a.prefix() + "more"), Value: make([]byte, little)})}}
	var err error
	for n := 0; n < values && err == nil; n++ {
		err = put(large(n), 1<<20)
		txn.Success = append(txn.Success, putOp(&pb.PutRequest{Key: large(n)}))
	}
	for _, size := range []int{64 << 10, little - 1<<10} {
		for n := 0; err == nil; n++ {
			err = put(fmt.Appendf(nil, "%s%d/%d", a.prefix(), size, n), size)
		}
		if atQuota(err) {
			err = nil
		}
	}
	if err != nil {
		a.result.Values["works"] = say(err)
		return
	}
	a.attack(pace{"have 3 MiB looked at for a write beyond the quota", 32, 180, 12, func(ctx context.Context) error {
		_, err := e.Txn(ctx, txn)
		if !atQuota(err) {
			return errors.Join(errors.New("not looked at"), err)
		}
		return nil
	}})
}
