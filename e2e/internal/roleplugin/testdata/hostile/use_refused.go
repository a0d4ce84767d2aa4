package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusedCalls has as many calls under way as it may, none of which it ends, and makes others all the time. A server may keep something of a call that it refuses until the deadline of
// that, which is years away.
func refusedCalls(a *attempt, e *etcd) {
	years, cancel := context.WithTimeout(context.Background(), 100_000*time.Hour)
	defer cancel()
	// As many as the store takes at a time. A connection takes 256.
	for range 8 {
		conn, err := dial(e.conn.Target()[len("unix://"):])
		if err != nil {
			a.note("another connection", say(err))
			return
		}
		defer conn.Close()
		for range 256 {
			if _, err := conn.NewStream(years, &grpc.StreamDesc{ClientStreams: true}, pb.KV_Put_FullMethodName); err != nil {
				a.note("begin a call that does not end", say(err))
			}
		}
	}
	// Less would not be seen in the store's memory.
	const many, mostTime = 200_000, 40 * time.Second
	began := time.Now()
	var refused, carriedOut atomic.Int64
	var calling sync.WaitGroup
	for range 4 {
		conn, err := dial(e.conn.Target()[len("unix://"):])
		if err != nil {
			a.note("another connection", say(err))
			return
		}
		defer conn.Close()
		kv := pb.NewKVClient(conn)
		for range 12 {
			calling.Go(func() {
				for time.Since(began) < a.lasts() || refused.Load() < many && time.Since(began) < mostTime {
					_, err := kv.Range(years, &pb.RangeRequest{Key: []byte(a.prefix() + "key")})
					switch status.Code(err) {
					case codes.OK:
						carriedOut.Add(1)
					case codes.ResourceExhausted:
						refused.Add(1)
					}
				}
			})
		}
	}
	calling.Wait()
	what := fmt.Sprintf("call beyond what it may have under way (%d calls refused, %d carried out)", refused.Load(), carriedOut.Load())
	if refused.Load() == 0 {
		a.try(what, nil)
		return
	}
	a.note(what, "the others were refused")
}
