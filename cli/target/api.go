package target

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// API returns the cluster API. Each call first finds the curators and renews the session, if that is needed. A call takes CallTimeout at most; a stream has no limit.
func (t *Target) API() clusterv1.ManagementServiceClient {
	return clusterv1.NewManagementServiceClient(lazyConn{t})
}

// Management is API for commands that ask a question before the call. It finds the curators first, so that nobody answers a question in vain.
func (t *Target) Management(ctx context.Context) (clusterv1.ManagementServiceClient, error) {
	return t.API(), t.connect(ctx)
}

// connect finds the curators, unless they are known, and renews the session when it is due.
func (t *Target) connect(ctx context.Context) error {
	if t.curators == nil {
		if err := t.connectCurators(ctx); err != nil {
			return err
		}
	}
	return t.renew(ctx)
}

// lazyConn is the connection to the curators. It is made by the first call.
type lazyConn struct{ t *Target }

func (l lazyConn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := l.t.connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return unlessCutOff(ctx, l.t.cutOff, func(ctx context.Context) error { return l.t.curators.Invoke(ctx, method, request, reply, options...) })
}

func (l lazyConn) NewStream(ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := l.t.connect(ctx); err != nil {
		return nil, err
	}
	return l.t.curators.NewStream(ctx, description, method, options...)
}

// anyOf is the scheme of a connection to several addresses.
const anyOf = "any"

// resolved resolves anyOf to the addresses.
func resolved(addresses []string) resolver.Builder {
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	builder := manual.NewBuilderWithScheme(anyOf)
	builder.InitialState(state)
	return builder
}
