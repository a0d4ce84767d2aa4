package door

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Store is what a Door serves.
type Store interface {
	Server() *etcdserver.EtcdServer
	// Admit asks for room for a request of a user before etcd sees it; the returned function is called when etcd has answered.
	Admit(ctx context.Context, user string, request any) (usage.Settle, error)
	// Number is that of a user, which its leases carry; 0: there is none.
	Number(user string) uint32
	// Leases are the IDs of a user's leases.
	Leases(user string) (*pb.LeaseLeasesResponse, error)
	// Revoked is told when a user has given a lease back.
	Revoked(lease int64)
	// MostRead is the most that a request of a user may read, as far as that is known without a look into the store, and Reads what it reads as the
	// store is now; beyond most it is not added up further.
	MostRead(user string, request any) int64
	Reads(ctx context.Context, user string, request any, most int64) (int64, error)
	// Visited is what a request has counted for the keys that etcd passed, by its answer; nil: by the most that they can be.
	Visited(user string, request, answer any) int64
	// HistorySince is how many bytes of history etcd reads for a watch of a user from a revision on; with previous values, it counts one more for each revision that etcd walks to find these.
	HistorySince(user string, revision int64) (read, walked int64)
	// Changes is how many changes history has of a key of a user.
	Changes(key []byte) int64
	// Beat is what it counts for the pace of what is read that a lease is kept alive or told of with its keys; 0: one that is told of without them.
	Beat(lease int64) int64
	// ClusterUser is the user that is not bounded.
	ClusterUser() string
	// Snapshot takes a snapshot of the whole store.
	Snapshot(ctx context.Context, options store.SnapshotOptions) (*store.Snapshot, error)
	// UsageOf is what a user has.
	UsageOf(user string) *consensusv1.UserUsage
}

// newServer returns the gRPC server with all of etcd's services, and the one for snapshots. There is one for all sockets: etcd keeps a goroutine for each until it ends.
func newServer(served Store, patience, readBound time.Duration) *grpc.Server {
	callers := newCallers(served.ClusterUser(), patience, readBound)
	server := v3rpc.Server(served.Server(), nil, unary(served),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(maxWaiting),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.StatsHandler(turns{callers}),
		grpc.ForceServerCodecV2(newCodec()), // in the place of etcd's own, which only counts bytes for metrics that nobody reads here
		grpc.ChainStreamInterceptor(stream(served)),
		grpc.Creds(transport{}),
		// As embed sets them: clients that were made for etcd, the API server of Kubernetes among them, ping as often as these allow.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: embed.DefaultGRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    embed.DefaultGRPCKeepAliveInterval,
			Timeout: embed.DefaultGRPCKeepAliveTimeout,
		}),
		// etcd must not be closed under a call that still runs.
		grpc.WaitForHandlers(true),
	)
	consensusv1.RegisterSnapshotServiceServer(server, &snapshots{served: served})
	return server
}

func unary(served Store) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := mayCall(served, store.UserOf(ctx), info.FullMethod); err != nil {
			return nil, err
		}
		own, carryOut := turnOf(ctx), carryOut(served, handle)
		switch {
		case own == nil:
			return carryOut(ctx, request)
		case own.refused != nil:
			return nil, own.refused
		case !own.taken:
			return nil, status.FromContextError(ctx.Err()).Err() // gRPC reads a request that is there, all the same
		}
		return own.caller.bounded(ctx, served, request, carryOut)
	}
}

// carryOut hands etcd what is for it, and answers the rest.
func carryOut(served Store, handle grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, request any) (any, error) {
		user := store.UserOf(ctx)
		ctx = withoutHeaders(ctx)
		switch request := request.(type) {
		case *pb.RangeRequest:
			return askAgain(ctx, request, handle)
		case *pb.LeaseGrantRequest:
			return grantLease(ctx, served, user, request, handle)
		case *pb.LeaseLeasesRequest:
			return served.Leases(user)
		case *pb.StatusRequest:
			return statusFor(ctx, served, user, request, handle)
		}
		if !ownLeases(served, user, request) {
			return nil, errDenied
		}
		return admitted(ctx, served, user, request, handle)
	}
}

// admitted carries out what there is room for.
func admitted(ctx context.Context, served Store, user string, request any, handle grpc.UnaryHandler) (any, error) {
	settle, err := served.Admit(ctx, user, request)
	if err != nil {
		return nil, err
	}
	answer, err := askAgain(ctx, request, handle)
	settle(answer, err)
	if revoked, ok := request.(*pb.LeaseRevokeRequest); ok && err == nil {
		served.Revoked(revoked.GetID())
	}
	return answer, err
}

func stream(served Store) grpc.StreamServerInterceptor {
	return func(server any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		user := store.UserOf(call.Context())
		if err := mayCall(served, user, info.FullMethod); err != nil {
			return err
		}
		own := turnOf(call.Context())
		if own != nil && own.refused != nil {
			return own.refused
		}
		call = headerless{ServerStream: call, ctx: withoutHeaders(call.Context())}
		if info.FullMethod == pb.Lease_LeaseKeepAlive_FullMethodName {
			alive := keepingAlive{ServerStream: call, served: served, user: user}
			if own != nil {
				alive.caller = own.caller
			}
			call = alive
		}
		if own != nil {
			if err := grpc.SetSendCompressor(call.Context(), encoding.Identity); err != nil {
				return err
			}
			call = flowing{ServerStream: call, caller: own.caller}
			if info.FullMethod == pb.Watch_Watch_FullMethodName {
				watches := &watching{ServerStream: call, caller: own.caller, present: served.Server().KV().Rev, since: served.HistorySince, changes: served.Changes}
				defer watches.end()
				call = watches
			}
		}
		return handle(server, call)
	}
}

// headerless is a streaming call in whose context there are no headers.
type headerless struct {
	grpc.ServerStream
	ctx context.Context
}

func (h headerless) Context() context.Context { return h.ctx }

// withoutHeaders takes the headers off a call, which etcd has looked at by then but for its tokens. etcd would believe a token before the connection, so that one which got out, root's own
// among them, would be worth something; here none is. It looks for one twice for each call, and copies all headers for that.
func withoutHeaders(ctx context.Context) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.MD{})
}

// askFor bounds how long a call is repeated, should users be made and removed without a pause. It is repeated at once, and then after ever longer pauses from
// askFirst to askLast: a change of users takes about as long as a call, and many that follow one another get in front of many of its attempts. How many, a
// machine under load decides; so the bound is a time, longer than etcd lets one call take (7 s).
const (
	askFor   = 10 * time.Second
	askFirst = time.Millisecond
	askLast  = 64 * time.Millisecond
)

// askAgain repeats a call that etcd refused because its permissions changed between the call's arrival and its turn, whosever permissions they
// were: making one role's user must not fail a call of another. etcd checks before it acts, so what was refused had no effect.
func askAgain(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	pause := time.Duration(0)
	for began := time.Now(); rpctypes.Error(err) == rpctypes.ErrAuthOldRevision && time.Since(began) < askFor && rested(ctx, pause); {
		pause = min(max(askFirst, 2*pause), askLast)
		answer, err = handle(ctx, request)
	}
	return answer, err
}

// rested waits for a pause, and reports whether there is still somebody who waits for an answer.
func rested(ctx context.Context, pause time.Duration) bool {
	if pause == 0 {
		return true
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopBound is how long a server's last calls may take. They end with their connections, unless etcd itself hangs.
const stopBound = 5 * time.Second

func stopServer(server *grpc.Server, log hclog.Logger) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Stop()
	}()
	select {
	case <-stopped:
	case <-time.After(stopBound):
		log.Error("calls to etcd have not ended; going on without them", "after", stopBound.String())
	}
}
