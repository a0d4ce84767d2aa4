package door

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
)

// oneLease is a store with one lease of ant.
type oneLease struct {
	Store
	id, beat, unread int64
}

func (o oneLease) Number(string) uint32   { return numbers.OfLease(o.id) }
func (o oneLease) Beat(lease int64) int64 { return map[int64]int64{o.id: o.beat, 0: o.unread}[lease] }

// beating is a stream on which a client keeps a lease alive as fast as it may.
type beating struct {
	grpc.ServerStream
	ctx   context.Context
	lease int64
}

func (b beating) Context() context.Context { return b.ctx }

func (b beating) RecvMsg(message any) error {
	message.(*pb.LeaseKeepAliveRequest).ID = b.lease
	return nil
}

// TestLeasesAreKeptAliveAtAPace keeps a lease alive on many streams, and asks for it, as fast as that goes: what each counts is paid for before the next one.
func TestLeasesAreKeptAliveAtAPace(t *testing.T) {
	served := oneLease{id: numbers.NewLease(7), beat: mebibyte, unread: mebibyte / 2}
	for name, of := range map[string]struct {
		counts int64
		begin  func(context.Context, *caller) error
	}{
		"kept alive": {served.beat, func(ctx context.Context, ant *caller) error {
			stream := keepingAlive{ServerStream: beating{ctx: ctx, lease: served.id}, served: served, user: "ant", caller: ant}
			return stream.RecvMsg(&pb.LeaseKeepAliveRequest{})
		}},
		"asked for with its keys": {served.beat, func(ctx context.Context, ant *caller) error {
			return ant.begins(ctx, served, &pb.LeaseTimeToLiveRequest{ID: served.id, Keys: true}, 0)
		}},
		"asked for without its keys": {served.unread, func(ctx context.Context, ant *caller) error {
			return ant.begins(ctx, served, &pb.LeaseTimeToLiveRequest{ID: served.id}, 0)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ant := newCaller("ant", DefaultPatience, DefaultReadBound)
			const streams, each = 100, 10
			began := time.Now()
			done := make(chan error, streams)
			for range streams {
				go func() {
					var err error
					for n := 0; n < each && err == nil; n++ {
						err = of.begin(t.Context(), ant)
					}
					done <- err
				}()
			}
			for range streams {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			// All but what is free, and the last one, are paid for.
			if got, want := time.Since(began).Seconds(), float64((streams*each-1)*of.counts-maxAnswers)/float64(readPace); got < want-0.1 || got > want+0.1 {
				t.Errorf("%d times %s: in %.1f s, want %.1f", streams*each, name, got, want)
			}
		})
	}
}
