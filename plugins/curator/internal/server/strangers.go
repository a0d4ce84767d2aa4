package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
)

const (
	// strangerCalls is how many calls may be under way on a connection on which nobody was let in yet: as many as a node makes at once that begins. strangerCallsPerPeer is how many from one network,
	// and mostStrangerCalls how many from all. A call costs memory before anybody can ask who makes it.
	strangerCalls        = 32
	strangerCallsPerPeer = 256
	mostStrangerCalls    = 1024
	// refusedFor is how long a connection lasts on which somebody was told that they are nobody: long enough for the answer, and for those of calls that were made at the same time.
	refusedFor = 3 * time.Second
)

// admit sees each call before gRPC keeps anything of it. It bounds the calls on connections of strangers, on which nobody was let in yet. Beyond a bound it closes a connection: the one that
// has too many calls by itself, or else the oldest. It never closes the newest, which may be that of a member who is let in within moments.
//
// It refuses no call: gRPC does not cancel the context of one that is refused here, and so keeps it in memory until the deadline that the caller has set. What is admitted ends with its connection.
func (p *peers) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, err := p.held.Begin(ctx, info)
	connection := connectionOf(ctx)
	if connection == nil || err != nil {
		return ctx, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if connection.known {
		return ctx, nil
	}
	p.look(ctx, connection)
	if connection.known || connection.expects {
		return ctx, nil
	}
	busy := func(other *peerConnection) bool { return other.calls > 0 }
	switch {
	case connection.calls >= strangerCalls:
		p.end(connection)
		return ctx, nil
	case p.strangerCalls[connection.network] >= strangerCallsPerPeer:
		p.end(p.oldest(func(other *peerConnection) bool { return other.network == connection.network && busy(other) }))
	case p.allStrangerCalls >= mostStrangerCalls:
		p.end(p.oldest(busy))
	}
	if connection.known {
		return ctx, nil // it was the oldest one
	}
	connection.calls++
	p.strangerCalls[connection.network]++
	p.allStrangerCalls++
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !connection.known {
			p.forgetCalls(connection, 1)
		}
	})
	return ctx, nil
}

// forgetCalls ends the count of so many calls of a stranger. The caller holds the lock.
func (p *peers) forgetCalls(connection *peerConnection, calls int) {
	connection.calls -= calls
	p.allStrangerCalls -= calls
	if p.strangerCalls[connection.network] -= calls; p.strangerCalls[connection.network] <= 0 {
		delete(p.strangerCalls, connection.network)
	}
}

// end closes a connection soon, and takes nothing more from it until then. The caller holds the lock.
func (p *peers) end(connection *peerConnection) {
	p.know(connection)
	connection.ended = true
	go func() { _ = connection.Close() }()
}

// look checks once whether the certificate of a connection is that of a member, by the newest state of the cluster that was seen. Members are not bounded as strangers are. The caller holds
// the lock; look gives it up while it verifies signatures, which is safe since the calls of one connection come one after another.
func (p *peers) look(ctx context.Context, connection *peerConnection) {
	if connection.looked || p.state == nil {
		return
	}
	connection.looked = true
	from, _ := peer.FromContext(ctx)
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return
	}
	state := p.state
	p.mu.Unlock()
	expects := auth.Expected(info.State.PeerCertificates, state, p.now())
	p.mu.Lock()
	connection.expects = expects
}

// stranger returns the connection of a call on which nobody was let in yet; nil: it is none. The caller holds the lock.
func (p *peers) stranger(ctx context.Context) *peerConnection {
	if connection := connectionOf(ctx); connection != nil && !connection.known {
		return connection
	}
	return nil
}

// remembering answers a stranger who was refused on a connection with the same refusal again, without asking the store: all calls of a connection have the certificate of its
// handshake. The connection is closed soon.
func (p *peers) remembering(authenticate func(context.Context) (auth.Caller, error)) func(context.Context) (auth.Caller, error) {
	return func(ctx context.Context) (auth.Caller, error) {
		p.mu.Lock()
		if connection := p.stranger(ctx); connection != nil && connection.refusal != nil {
			defer p.mu.Unlock()
			return auth.Caller{}, connection.refusal
		}
		p.mu.Unlock()
		caller, err := authenticate(ctx)
		if err == nil || status.Code(answer.Error(err)) != codes.Unauthenticated {
			return caller, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if connection := p.stranger(ctx); connection != nil && connection.refusal == nil {
			connection.refusal = err
			connection.hurry.Reset(p.refusedFor)
		}
		return caller, err
	}
}
