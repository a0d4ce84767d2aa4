package consensus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// renewals answers every renewal of a lease by a function. It is a pb.LeaseClient and a clientv3.Lease.
type renewals struct {
	pb.LeaseClient
	clientv3.Lease
	answer func(ctx context.Context) (ttl int64, err error)
}

func (r *renewals) Grant(_ context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	time.Sleep(time.Second) // in the bubble's time: the answer is on its way
	return &clientv3.LeaseGrantResponse{ID: 1, TTL: ttl}, nil
}

func (r *renewals) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse], error) {
	return &renewal{renewals: r, ctx: ctx}, nil
}

type renewal struct {
	grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	*renewals
	ctx context.Context
}

func (r *renewal) Send(*pb.LeaseKeepAliveRequest) error { return nil }

func (r *renewal) Recv() (*pb.LeaseKeepAliveResponse, error) {
	ttl, err := r.answer(r.ctx)
	return &pb.LeaseKeepAliveResponse{TTL: ttl}, err
}

// A lease is over here when the store may end it: its TTL after the last renewal was asked for, and not after it was answered.
func TestKeeper(t *testing.T) {
	const ttl = 9 // asked for at 0 s and then every 3 s after an answer
	away := status.Error(codes.Unavailable, "away")
	began := time.Time{}
	at := func() time.Duration { return time.Since(began) }
	for name, test := range map[string]struct {
		answer func(ctx context.Context) (int64, error)
		why    string
		ends   time.Duration
	}{
		"never answered": {
			func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() },
			"did not answer", 9 * time.Second,
		},
		"away from the beginning": {
			func(context.Context) (int64, error) { return 0, away },
			"did not answer", 9 * time.Second,
		},
		"away for less than the TTL, and then for good": {
			func(context.Context) (int64, error) {
				if now := at(); now < 8*time.Second || now > 9*time.Second {
					return 0, away
				}
				return ttl, nil
			},
			"did not answer", 17 * time.Second,
		},
		"slow, and then silent": {
			func(ctx context.Context) (int64, error) {
				if at() > 5*time.Second {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				time.Sleep(4 * time.Second)
				return ttl, nil
			},
			"did not answer", 13 * time.Second, // asked for at 4 s, answered at 8 s
		},
		"ended by the store": {
			func(context.Context) (int64, error) { return 0, nil },
			"the store ended", 4 * time.Second,
		},
		"refused": {
			func(context.Context) (int64, error) { return 0, status.Error(codes.PermissionDenied, "not yours") },
			"does not renew", 4 * time.Second,
		},
		"given up": {
			func(context.Context) (int64, error) { return ttl, nil },
			"given up", 60 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var why string
				source := &renewals{answer: test.answer}
				k := &keeper{Lease: source, remote: source, ended: func(told string, _ error) { why = told }}
				if _, err := k.Grant(ctx, ttl); err != nil {
					t.Fatal(err)
				}
				over, err := k.KeepAlive(ctx, 1)
				if err != nil {
					t.Fatal(err)
				}
				<-over
				// A pause between two attempts may be under way when the time is up.
				if took := at(); took != test.ends || !strings.Contains(why, test.why) {
					t.Errorf("it ends after %s, want %s: %s", took, test.ends, why)
				}
			})
		})
	}
}

func TestMends(t *testing.T) {
	for err, want := range map[error]bool{
		ErrTermOver:                                true,
		status.Error(codes.Unavailable, "away"):    true,
		status.Error(codes.PermissionDenied, "no"): false,
		&OverQuotaError{status: status.New(codes.ResourceExhausted, "full")}: false,
		errors.New("something else"):                                         false,
	} {
		if got := mends(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}
