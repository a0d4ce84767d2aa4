package consensus

import (
	"context"
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// askAgain is the pause before a failed renewal is repeated.
const askAgain = 100 * time.Millisecond

// keeper renews one lease. etcd's client counts a lease's time from the store's answer and checks it twice a second. The keeper counts from before
// the request, so the lease ends here before it ends in the store.
type keeper struct {
	clientv3.Lease
	remote pb.LeaseClient
	// ended is called with the reason when the lease is not renewed any more.
	ended func(why string, err error)

	ttl   time.Duration
	until time.Time
}

// Grant implements clientv3.Lease.
func (k *keeper) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	asked := time.Now()
	granted, err := k.Lease.Grant(ctx, ttl)
	if err == nil {
		k.good(asked, granted.TTL)
	}
	return granted, err
}

// KeepAlive implements clientv3.Lease as far as a concurrency.Session needs it: the channel is closed when the lease is over or ctx is done.
func (k *keeper) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	over := make(chan *clientv3.LeaseKeepAliveResponse)
	go func() {
		defer close(over)
		k.ended(k.keep(ctx, id))
	}()
	return over, nil
}

func (k *keeper) good(asked time.Time, ttl int64) {
	k.ttl = time.Duration(ttl) * time.Second
	k.until = asked.Add(k.ttl)
}

// keep renews the lease until that fails, and returns the reason.
func (k *keeper) keep(ctx context.Context, id clientv3.LeaseID) (why string, err error) {
	for {
		timer := time.NewTimer(k.ttl / 3)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "it was given up", context.Cause(ctx)
		case <-timer.C:
		}
		if why, err := k.renew(ctx, id); why != "" {
			return why, err
		}
	}
}

// renew repeats the request until the store has renewed the lease or its time is over. It returns why it failed, or "".
func (k *keeper) renew(ctx context.Context, id clientv3.LeaseID) (why string, err error) {
	ctx, cancel := context.WithDeadline(ctx, k.until)
	defer cancel()
	for {
		asked := time.Now()
		ttl, err := k.ask(ctx, id)
		switch {
		case err == nil && ttl > 0:
			k.good(asked, ttl)
			return "", nil
		case err == nil:
			return "the store ended its lease", nil
		case ctx.Err() == nil && !passing(err):
			return "the store does not renew its lease", err
		}
		select {
		case <-ctx.Done():
			return "the store did not answer for the TTL of its lease", err
		case <-time.After(askAgain):
		}
	}
}

// ask makes one request and waits for the answer. The TTL is 0 if the store does not have the lease.
func (k *keeper) ask(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := k.remote.LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	// After io.EOF, Recv returns the actual error.
	answer, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return answer.GetTTL(), nil
}
