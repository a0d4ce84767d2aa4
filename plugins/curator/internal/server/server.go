package server

import (
	"context"
	"crypto/tls"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/enrolment"
	"github.com/reeveproject/reeve/plugins/curator/internal/management"
	"github.com/reeveproject/reeve/plugins/curator/internal/nodes"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// maxRequest bounds what a caller can make the curator hold before it is known who calls. The largest request, a node's roles, is
	// smaller.
	maxRequest = 2 << 20
	// connectionBuffer is the size of the buffers of a connection: there is one for each node of the cluster, on which next to nothing is under way at most times.
	// TLS, which reads and writes whole records whatever it is asked for, has buffers of its own.
	connectionBuffer = 4 << 10
	// window is how much of a request may be on its way before the first of it is read, on a connection too: a report of a node, mostly. Its size is given, since gRPC finds another one by a ping
	// for each message: for each heartbeat, here.
	window = 256 << 10
	// maxStreams is how many calls one connection may have under way.
	maxStreams = 256
	// handshakeWithin bounds a handshake, for peers that connect and say nothing.
	handshakeWithin = 10 * time.Second
	// pingMin is how often clients may send keepalives: gRPC clients send none more often than every 10 s.
	pingMin = 5 * time.Second
	// idlePing and idleAnswer find clients that are gone without a word.
	idlePing   = 30 * time.Second
	idleAnswer = 10 * time.Second
	// maxAge ends connections in time, so that a caller proves itself anew: a connection must not outlive the certificate that it was made
	// with, which at half of an SVID's life has 12 hours left, nor a stream the key that was unpinned after it began.
	maxAge      = time.Hour
	maxAgeGrace = 30 * time.Second
)

// tellable is whom this server can tell.
var tellable = []clusterv1.Caller{
	clusterv1.Caller_CALLER_NODE, clusterv1.Caller_CALLER_OWNER, clusterv1.Caller_CALLER_OPERATOR, clusterv1.Caller_CALLER_VIEWER,
	clusterv1.Caller_CALLER_NEWCOMER,
}

// newServer returns the gRPC server of the cluster API. It fails if an RPC does not declare who may call it.
func newServer(
	ctx context.Context, config Config, records *store.Store, followed *cache.Cache, serving *ca.Serving, audited *audit.Log, peers *peers, stored *scheduled.Directory,
) (*grpc.Server, error) {
	snapshots, news := followed.Snapshots(), followed.News()
	starts := auth.NewStarts(auth.StartsConfig{Store: records, Log: config.Log.Named("starts"), Now: config.Now})
	guard := auth.NewGuard(auth.GuardConfig{
		Starts:       starts,
		Authenticate: peers.remembering(auth.NewAuthenticator(records, snapshots, config.Now).Authenticate),
		Snapshots:    snapshots,
		News:         news,
		Now:          config.Now,
		Told: func(ctx context.Context, caller auth.Caller, admitted bool) {
			if caller.Kind == clusterv1.Caller_CALLER_NEWCOMER {
				return // a key is nobody, until the call has found out whose it is (internal/enrolment)
			}
			kind := clusterv1.Caller_CALLER_UNSPECIFIED
			if admitted {
				kind = caller.Kind
				peers.letIn(ctx, caller.NodeID)
				belongs(ctx, caller.String())
			}
			audit.CallOf(ctx).By(caller.String(), kind)
		},
	})
	var permissions auth.Permissions
	isAudited := func(rpc string) bool { return permissions[rpc].GetAudited() }
	// What viewers may call changes nothing, and only logging in is done by key.
	forViewers := func(rpc string) bool {
		return slices.Contains(permissions[rpc].GetCallers(), clusterv1.Caller_CALLER_VIEWER)
	}
	peers.turns.reads = func(rpc string) bool { return forViewers(rpc) && !permissions[rpc].GetByKey() }
	peers.turns.changes = func(rpc string) bool { return !forViewers(rpc) && !permissions[rpc].GetByKey() }
	rescue := recovery.WithRecoveryHandlerContext(func(_ context.Context, cause any) error { return panicked(config.Log, cause) })
	server := grpc.NewServer(append(peers.held.Options(),
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:     tls.VersionTLS13,
			GetCertificate: serving.GetCertificate,
			// Whose certificate it is, and whether that is enough, is decided for each call by what the store then holds (internal/auth).
			ClientAuth: tls.RequireAnyClientCert,
			// Every connection is made by a handshake in which the client proves that it holds its key.
			SessionTicketsDisabled: true,
		})),
		// Twice what rescues: so that a call which panics has its entry in the audit log, and for what is around it.
		grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(rescue), config.Metrics.Unary, audited.Unary(isAudited),
			recovery.UnaryServerInterceptor(rescue), errorsUnary, guard.Unary, peers.held.Unary, peers.turn),
		grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(rescue), config.Metrics.Stream, audited.Stream(isAudited),
			recovery.StreamServerInterceptor(rescue), errorsStream, stopping(ctx), guard.Stream, peers.held.Stream),
		grpc.ReadBufferSize(connectionBuffer),
		grpc.WriteBufferSize(connectionBuffer),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(peers.admit),
		grpc.ConnectionTimeout(handshakeWithin),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: idlePing, Timeout: idleAnswer, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace,
		}),
		grpc.WaitForHandlers(true),
	)...)
	clusterv1.RegisterNodeServiceServer(server, nodes.NewService(nodes.Config{
		Store: records, Snapshots: snapshots, News: news, Log: config.Log.Named("nodes"), Now: config.Now, HeartbeatTTL: config.HeartbeatTTL,
	}))
	clusterv1.RegisterManagementServiceServer(server, management.NewService(management.Config{
		Store: records, Snapshots: snapshots, Log: config.Log.Named("management"), Now: config.Now, LoggedIn: config.Metrics.LoggedIn,
		StoreSnapshots: config.Snapshots, Stored: stored,
	}))
	clusterv1.RegisterEnrolmentServiceServer(server, enrolment.NewService(enrolment.Config{
		Store: records, Snapshots: snapshots, News: news, Starts: starts, Log: config.Log.Named("enrolment"), Now: config.Now, ClusterUser: config.ClusterUser,
		CheckRoles: management.CheckRoles, LetIn: peers.letInNewcomer,
	}))
	var err error
	if permissions, err = auth.Declared(server.GetServiceInfo(), tellable...); err != nil {
		server.Stop()
		return nil, err
	}
	guard.Enforce(permissions)
	return server, nil
}

func panicked(log hclog.Logger, cause any) error {
	log.Error("a call panicked: this is a mistake in the curator", "panic", cause, "stack", string(debug.Stack()))
	return answer.Errorf(codes.Internal, "the call met a mistake in the curator, whose log has the details (`reeve logs`)")
}

func errorsUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, request)
	return response, answer.Error(err)
}

func errorsStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return answer.Error(handler(service, stream))
}

var errStopping = errors.New("the curator stops")

// stopping ends streams when the curator does, so that their clients go to another curator, or come back to the next one, at once.
func stopping(curator context.Context) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancelCause(stream.Context())
		defer cancel(nil)
		defer context.AfterFunc(curator, func() { cancel(errStopping) })()
		err := handler(service, &bound{ServerStream: stream, ctx: ctx})
		if errors.Is(context.Cause(ctx), errStopping) && stream.Context().Err() == nil {
			return answer.Errorf(codes.Unavailable, "this curator is stopping: connect again")
		}
		return err
	}
}

type bound struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (b *bound) Context() context.Context { return b.ctx }
