package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// useAttempts use up the store, within what is the role's own.
var useAttempts = map[string]func(*attempt){
	"use.nested":   withStore(nestedReads),
	"use.unread":   withStore(unreadAnswers),
	"use.watches":  withStore(manyWatches),
	"use.filters":  withStore(manyFilters),
	"use.past":     withStore(pastWatches),
	"use.previous": withStore(previousValues),
	"use.old":      withStore(formerRevisions),
	"use.alive":    withStore(beatLease),
	"use.quota":    withStore(atItsQuota),
	"use.stream":   withStore(unreadStreams),
	"use.history":  withStore(overwrite),
	"use.rewrite":  withStore(rewriteValues),
	"use.applied":  withStore(readInWrites),
	"use.leases":   withStore(grantAndRevoke),
	"use.lease":    withStore(fillLease),
	"use.count":    withStore(countMany),
	"use.delete":   withStore(deleteMany),
	"use.refused":  withStore(refusedCalls),
}

// lasts is how long an attempt goes on.
func (a *attempt) lasts() time.Duration {
	seconds, err := strconv.Atoi(a.arguments["seconds"])
	if err != nil {
		seconds = 3
	}
	return time.Duration(seconds) * time.Second
}

// pace is something that is done again and again by some workers, and how often it may be: so often at once, and then so often a second.
type pace struct {
	what              string
	workers           int
	atOnce, perSecond int64
	once              func(context.Context) error
}

// attack does some things side by side for as long as the attempt lasts. What succeeds more often than it may has got through.
func (a *attempt) attack(things ...pace) {
	ctx, cancel := context.WithTimeout(context.Background(), a.lasts())
	defer cancel()
	began, done := time.Now(), make([]atomic.Int64, len(things))
	var attacking sync.WaitGroup
	for n, thing := range things {
		for range thing.workers {
			attacking.Go(func() {
				for ctx.Err() == nil {
					if thing.once(ctx) == nil {
						done[n].Add(1)
					}
				}
			})
		}
	}
	attacking.Wait()
	took := time.Since(began)
	for n, thing := range things {
		times := fmt.Sprintf("%d times in %.1f s", done[n].Load(), took.Seconds())
		if done[n].Load() > thing.atOnce+thing.perSecond*int64(took.Seconds()+1) {
			a.try(thing.what+", "+times, nil)
		} else {
			a.note(thing.what, times)
		}
	}
}

// large puts a value of 1 MiB and returns its key.
func (a *attempt) large(e *etcd) []byte {
	key := []byte(a.prefix() + "large")
	ctx, cancel := short()
	defer cancel()
	value := make([]byte, 1<<20)
	for i := range value {
		value[i] = byte(i * 7)
	}
	if _, err := e.Put(ctx, &pb.PutRequest{Key: key, Value: value}); err != nil {
		a.note("write 1 MiB", say(err))
	}
	return key
}

func reads(key []byte, times int) *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	for range times {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}})
	}
	return txn
}

// nestedReads reads 4 GiB with one transaction that etcd allows, since it counts each level by itself.
func nestedReads(a *attempt, e *etcd) {
	key := a.large(e)
	txn := &pb.TxnRequest{}
	for range 64 {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: reads(key, 64)}})
	}
	a.rpc("64 × 64 reads of 1 MiB", func(ctx context.Context) error {
		_, err := e.Txn(ctx, txn)
		if status.Code(err) == codes.ResourceExhausted && len(status.Convert(err).Message()) < 60 {
			return nil // the client's own bound, or gRPC's: the store has read all of it
		}
		return err
	})
}

// unreadAnswers asks for 24 × 100 MiB on connections whose answers it does not take.
func unreadAnswers(a *attempt, e *etcd) {
	key := a.large(e)
	ctx, cancel := context.WithTimeout(context.Background(), a.lasts())
	defer cancel()
	var answered atomic.Int64
	var asking sync.WaitGroup
	for range 8 {
		conn, err := dial(e.conn.Target()[len("unix://"):])
		if err != nil {
			a.note("another connection", say(err))
			return
		}
		defer conn.Close()
		for range 3 {
			asking.Go(func() {
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.KV_Txn_FullMethodName)
				if err == nil {
					err = stream.SendMsg(reads(key, 100))
				}
				if err == nil {
					err = stream.CloseSend()
				}
				if err == nil {
					if header, err := stream.Header(); err == nil && len(header) > 0 {
						answered.Add(1)
					}
				}
				<-ctx.Done()
			})
		}
	}
	asking.Wait()
	what := fmt.Sprintf("have 24 answers of 100 MiB wait (%d were made)", answered.Load())
	if answered.Load() > 1 {
		a.try(what, nil)
		return
	}
	a.note(what, "the others were refused")
}

// manyWatches begins as many watches as it gets.
func manyWatches(a *attempt, e *etcd) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	const many = 30_000
	stream, err := e.Watch(ctx)
	if err != nil {
		a.note("watch", say(err))
		return
	}
	go func() {
		for n := range many {
			if stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: fmt.Appendf(nil, "%swatched/%d", a.prefix(), n),
			}}}) != nil {
				return
			}
		}
	}()
	begun := 0
	for ; begun < many && err == nil; begun++ {
		_, err = stream.Recv()
	}
	a.try(fmt.Sprintf("begin %d watches (refused after %d)", many, begun), err)
}

// manyFilters begins watches with a million filters each, all of which etcd would call for each event.
func manyFilters(a *attempt, e *etcd) {
	a.rpc("watch with a million filters", func(ctx context.Context) error {
		stream, err := e.Watch(ctx)
		if err == nil {
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: []byte(a.prefix() + "key"), Filters: make([]pb.WatchCreateRequest_FilterType, 1<<20),
			}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	})
}

// pastWatches watches what it has written before, again and again, and does not read what comes.
func pastWatches(a *attempt, e *etcd) {
	ctx, cancel := context.WithTimeout(context.Background(), a.lasts())
	defer cancel()
	key := []byte(a.prefix() + "large")
	from := int64(0)
	for range 30 {
		answer, err := e.Put(ctx, &pb.PutRequest{Key: key, Value: make([]byte, 1<<20)})
		if err == nil && from == 0 {
			from = answer.GetHeader().GetRevision()
		}
	}
	stream, err := e.Watch(ctx)
	begun := 0
	for ; err == nil && ctx.Err() == nil; begun++ {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: key, StartRevision: from}}})
		select {
		case <-time.After(100 * time.Millisecond): // etcd has read the past for it
		case <-ctx.Done():
		}
	}
	a.note(fmt.Sprintf("ask for %d watches of the past", begun), "what is not read is not read for it")
}

// unreadStreams asks for everything on streams that it does not take.
func unreadStreams(a *attempt, e *etcd) {
	key := a.large(e)
	a.rpc("RangeStream, which is not read", func(ctx context.Context) error {
		var failed error
		for range 100 {
			stream, err := e.RangeStream(ctx, &pb.RangeRequest{Key: key})
			if err == nil {
				_, err = stream.Header()
			}
			if err == nil {
				_, err = stream.Recv()
			}
			failed = cmp.Or(failed, err)
		}
		return failed
	})
}

// rewriteValues has etcd write a value of 1 MiB anew for some bytes.
func rewriteValues(a *attempt, e *etcd) {
	key := a.large(e)
	a.rpc("put with ignore_value", func(ctx context.Context) error {
		return drop(e.Put(ctx, &pb.PutRequest{Key: key, IgnoreValue: true}))
	})
	a.rpc("a transaction that puts with ignore_value", func(ctx context.Context) error {
		return drop(e.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: key, IgnoreValue: true},
		}}}}))
	})
}

// readInWrites reads in transactions that write: each member does it while everybody's writes wait.
func readInWrites(a *attempt, e *etcd) {
	key := a.large(e)
	writing := func(times int) *pb.TxnRequest {
		txn := reads(key, times)
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(a.prefix() + "key")}}})
		return txn
	}
	a.rpc("read 100 MiB in a transaction that writes", func(ctx context.Context) error { return drop(e.Txn(ctx, writing(100))) })
	a.attack(pace{"read 7 MiB in a transaction that writes", 8, 20, 10, func(ctx context.Context) error { return drop(e.Txn(ctx, writing(7))) }})
}

// overwrite writes one value of 1 MiB again and again, with four writers.
func overwrite(a *attempt, e *etcd) {
	value := make([]byte, 1<<20)
	for i := range value {
		value[i] = byte(i * 7)
	}
	a.attack(pace{"overwrite 1 MiB", 4, 70, 5, func(ctx context.Context) error {
		return drop(e.Put(ctx, &pb.PutRequest{Key: []byte(a.prefix() + "large"), Value: value}))
	}})
}

// grantAndRevoke takes and gives back leases all the time, many at once, and lists them.
func grantAndRevoke(a *attempt, e *etcd) {
	a.attack(pace{"grant, revoke and list leases", 200, 1100, 70, func(ctx context.Context) error {
		granted, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
		if err == nil {
			_, err = e.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: granted.GetID()})
		}
		if err == nil {
			_, err = e.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
		}
		return err
	}})
}
