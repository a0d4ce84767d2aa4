package door

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// maxStreams is how many calls a connection may have under way. etcd sets no bound, so that one instance could have its millions of watches, each a few
// goroutines, use up the memory of the store. The API server of Kubernetes, the busiest client there is, has its watches of a client on one stream
// and needs a stream for each read or write under way: hundreds. A client that opens more waits; nothing is refused.
const maxStreams = 10_000

// Store is what a Door serves.
type Store interface {
	Server() *etcdserver.EtcdServer
	// Admit asks for room for a request of a user before etcd sees it; the returned function is called when etcd has answered.
	Admit(user string, request any) (answered func(), err error)
}

// newServer returns the gRPC server with all of etcd's services. There is one for all sockets: etcd keeps a goroutine for each until it ends.
func newServer(served Store) *grpc.Server {
	return v3rpc.Server(served.Server(), nil, unary(served),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ChainStreamInterceptor(stream),
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
}

func unary(served Store) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		answered, err := served.Admit(store.UserOf(ctx), request)
		if err != nil {
			return nil, err
		}
		defer answered()
		return askAgain(withoutToken(ctx), request, handle)
	}
}

func stream(server any, call grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, tokenless{ServerStream: call, ctx: withoutToken(call.Context())})
}

// tokenless is a streaming call in whose context there is no token.
type tokenless struct {
	grpc.ServerStream
	ctx context.Context
}

func (t tokenless) Context() context.Context { return t.ctx }

// withoutToken takes etcd's tokens off a call. etcd would believe a token before the connection, so that one which got out, root's own among
// them, would be worth something; here none is.
func withoutToken(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameGRPC)) == 0 &&
		len(metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameSwagger)) == 0 {
		return ctx
	}
	sent, _ := metadata.FromIncomingContext(ctx) // a copy
	delete(sent, rpctypes.TokenFieldNameGRPC)
	delete(sent, rpctypes.TokenFieldNameSwagger)
	return metadata.NewIncomingContext(ctx, sent)
}

// askAttempts bounds how often a call is repeated, should users be made and removed without a pause.
const askAttempts = 16

// askAgain repeats a call that etcd refused because its permissions changed between the call's arrival and its turn, whosever permissions they
// were: making one role's user must not fail a call of another. etcd checks before it acts, so what was refused had no effect.
func askAgain(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	for range askAttempts {
		if rpctypes.Error(err) != rpctypes.ErrAuthOldRevision {
			break
		}
		answer, err = handle(ctx, request)
	}
	return answer, err
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
