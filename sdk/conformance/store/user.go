package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/conformance"
)

// maxRefusals is how many refusals of a user are recorded. More would say the same.
const maxRefusals = 16

// user is a ConsensusUser of the store.
type user struct {
	store                *Store
	name, prefix, socket string

	mu       sync.Mutex
	requests int
	denied   []string
	noRoom   int
}

var _ conformance.StoreUser = (*user)(nil)

// Socket implements conformance.StoreUser.
func (u *user) Socket() string { return u.socket }

// Usage implements conformance.StoreUser.
func (u *user) Usage() conformance.StoreUsage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return conformance.StoreUsage{Requests: u.requests, Denied: slices.Clone(u.denied), NoRoom: u.noRoom}
}

// Full implements conformance.StoreUser. The store is then full for everybody.
func (u *user) Full(ctx context.Context, full bool) error { return u.store.full(ctx, full) }

// Leases implements conformance.StoreUser. All leases of the store count, because only one user is active at a time.
func (u *user) Leases(ctx context.Context) ([]time.Duration, error) {
	var left []time.Duration
	return left, u.eachLease(ctx, func(ctx context.Context, id clientv3.LeaseID) error {
		now, err := u.store.client.TimeToLive(ctx, id)
		if err == nil && now.TTL > 0 {
			left = append(left, time.Duration(now.TTL)*time.Second)
		}
		return err
	})
}

func (u *user) eachLease(ctx context.Context, do func(context.Context, clientv3.LeaseID) error) error {
	ctx = as(ctx, root)
	found, err := u.store.client.Leases(ctx)
	if err != nil {
		return err
	}
	for _, lease := range found.Leases {
		// It may have expired meanwhile.
		if err := do(ctx, lease.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
	}
	return nil
}

// Clear implements conformance.StoreUser.
func (u *user) Clear(ctx context.Context) error {
	if err := u.eachLease(ctx, func(ctx context.Context, id clientv3.LeaseID) error {
		_, err := u.store.client.Revoke(ctx, id)
		return err
	}); err != nil {
		return err
	}
	if _, err := u.store.client.Delete(as(ctx, root), u.prefix, clientv3.WithPrefix()); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests, u.denied, u.noRoom = 0, nil, 0
	return nil
}

// methods are the methods that a ConsensusUser may call in a cluster.
var methods = map[string]bool{
	pb.KV_Range_FullMethodName: true, pb.KV_Put_FullMethodName: true, pb.KV_DeleteRange_FullMethodName: true, pb.KV_Txn_FullMethodName: true,
	pb.Watch_Watch_FullMethodName: true, pb.Maintenance_Status_FullMethodName: true,
	pb.Lease_LeaseGrant_FullMethodName: true, pb.Lease_LeaseRevoke_FullMethodName: true, pb.Lease_LeaseKeepAlive_FullMethodName: true,
	pb.Lease_LeaseTimeToLive_FullMethodName: true, pb.Lease_LeaseLeases_FullMethodName: true,
}

func (s *Store) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	u := s.userOf(ctx)
	if err = rpctypes.ErrGRPCPermissionDenied; methods[info.FullMethod] {
		answer, err = handle(ctx, request)
	}
	u.asked(info.FullMethod, request, err)
	return answer, err
}

func (s *Store) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	u := s.userOf(stream.Context())
	if info.FullMethod == pb.KV_RangeStream_FullMethodName {
		return status.Error(codes.Unimplemented, "consensus: RangeStream is not offered: use Range, with a limit")
	}
	if !methods[info.FullMethod] {
		u.asked(info.FullMethod, nil, rpctypes.ErrGRPCPermissionDenied)
		return rpctypes.ErrGRPCPermissionDenied
	}
	return handle(server, &requests{ServerStream: stream, user: u, method: info.FullMethod})
}

// requests counts the requests on a stream.
type requests struct {
	grpc.ServerStream
	user   *user
	method string
}

// RecvMsg implements grpc.ServerStream.
func (r *requests) RecvMsg(message any) error {
	err := r.ServerStream.RecvMsg(message)
	if err == nil {
		r.user.asked(r.method, message, nil)
	}
	return err
}

// SendMsg implements grpc.ServerStream. A refused watch is an answer on its stream.
func (r *requests) SendMsg(message any) error {
	if answer, ok := message.(*pb.WatchResponse); ok && answer.GetCanceled() && strings.Contains(answer.GetCancelReason(), "permission denied") {
		r.user.denies(r.method, "a watch")
	}
	return r.ServerStream.SendMsg(message)
}

// asked counts a request and its outcome.
func (u *user) asked(method string, request any, err error) {
	switch status.Code(err) {
	case codes.PermissionDenied:
		u.denies(method, keysOf(request))
	case codes.ResourceExhausted:
		u.mu.Lock()
		u.noRoom++
		u.mu.Unlock()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests++
}

func (u *user) denies(method, what string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.denied) < maxRefusals {
		u.denied = append(u.denied, strings.TrimSpace(method[strings.LastIndexByte(method, '/')+1:]+" "+what))
	}
}

// keysOf names a request's keys.
func keysOf(request any) string {
	keys := func(key, end []byte) string {
		if len(end) == 0 {
			return fmt.Sprintf("%q", key)
		}
		return fmt.Sprintf("%q to %q", key, end)
	}
	switch request := request.(type) {
	case *pb.RangeRequest:
		return keys(request.GetKey(), request.GetRangeEnd())
	case *pb.PutRequest:
		return keys(request.GetKey(), nil)
	case *pb.DeleteRangeRequest:
		return keys(request.GetKey(), request.GetRangeEnd())
	}
	return ""
}
