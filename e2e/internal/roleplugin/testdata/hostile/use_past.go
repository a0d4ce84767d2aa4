package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// makePast writes some keys anew again and again. It returns the revision where their past begins, and what writes them on while the past is attacked, at the pace that there is. That moves the revision
// on, since history is compacted.
func (a *attempt) makePast(e *etcd, keys int, writes int64) (from *atomic.Int64, on pace, err error) {
	from = new(atomic.Int64)
	more := func(ctx context.Context) error {
		answer, err := e.Txn(ctx, a.puts(0, keys, 0))
		if err == nil {
			from.Store(answer.GetHeader().GetRevision() - writes)
		}
		return err
	}
	var left atomic.Int64
	left.Store(writes)
	const workers = 32
	failed := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for left.Add(-1) >= 0 && err == nil {
				err = insist(more)
			}
			failed <- err
		}()
	}
	for range workers {
		err = errors.Join(err, <-failed)
	}
	perWrite := int64(keys) * (192 + int64(len(a.numbered(0))))
	return from, pace{fmt.Sprintf("write %d keys", keys), 1, 64 << 20 / perWrite, 4 << 20 / perWrite, more}, err
}

// previousValues watches from the past with previous values, again and again: etcd looks each of them up by itself. For the first thousand revisions it walks five million.
func previousValues(a *attempt, e *etcd) {
	const keys, writes = 2, 3000
	from, on, err := a.makePast(e, keys, writes)
	if err != nil {
		a.result.Values["works"] = say(err)
		return
	}
	a.attack(on, pace{fmt.Sprintf("watch %d changes of %d keys from the past, with previous values", writes, keys), 16, 9, 4, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := e.Watch(ctx)
		if err == nil {
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: a.numbered(0), RangeEnd: a.numbered(keys), StartRevision: from.Load(), PrevKv: true,
			}}})
		}
		for told := new(pb.WatchResponse); err == nil && len(told.GetEvents()) == 0; {
			if told, err = stream.Recv(); told.GetCanceled() {
				return errors.New(told.GetCancelReason())
			}
		}
		return err
	}})
}

// formerRevisions reads keys as they were: etcd walks the revisions of each from the newest on.
func formerRevisions(a *attempt, e *etcd) {
	const keys, writes = 60, 600
	from, on, err := a.makePast(e, keys, writes)
	if err != nil {
		a.result.Values["works"] = say(err)
		return
	}
	counts := func(times int) *pb.TxnRequest {
		txn := reads(a.numbered(0), times)
		for _, op := range txn.GetSuccess() {
			r := op.GetRequestRange()
			r.RangeEnd, r.CountOnly, r.Revision = a.numbered(keys), true, from.Load()
		}
		return txn
	}
	writing := func(times int) *pb.TxnRequest {
		txn := counts(times)
		txn.Success = append(txn.Success, putOp(&pb.PutRequest{Key: []byte(a.prefix() + "key")}))
		return txn
	}
	const most, some, few = 360, 100, 16
	a.rpc(fmt.Sprintf("a put and %d ranges at a former revision in one transaction", most), func(ctx context.Context) error { return drop(e.Txn(ctx, writing(most))) })
	a.attack(on,
		pace{fmt.Sprintf("a put and %d ranges at a former revision", some), 16, 130, 16, func(ctx context.Context) error { return drop(e.Txn(ctx, writing(some))) }},
		pace{fmt.Sprintf("%d ranges at a former revision", few), 16, 200, 120, func(ctx context.Context) error { return drop(e.Txn(ctx, counts(few))) }})
}
