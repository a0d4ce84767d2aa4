package server

import (
	"context"
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

const (
	// strangerCalls is how many calls may be under way on a connection on which nobody was let in yet: as many as a node makes at once that begins. strangerCallsPerPeer is how many from one address,
	// and mostStrangerCalls how many from all. A call costs memory before anybody can ask who makes it.
	strangerCalls        = 32
	strangerCallsPerPeer = 256
	mostStrangerCalls    = 1024
	// refusedFor is how long a connection lasts on which somebody was told that they are nobody: long enough for the answer, and for those of calls that were made at the same time.
	refusedFor = 3 * time.Second
)

// admit is what decides of each call, before anything is kept for it, whether there is room for one of somebody who may be nobody.
func (p *peers) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	connection := p.stranger(ctx)
	if connection == nil || connection.expected(ctx, p.state) {
		return ctx, nil
	}
	var most int
	var where string
	switch {
	case connection.calls >= strangerCalls:
		most, where = strangerCalls, "on one connection"
	case p.strangerCalls[connection.host] >= strangerCallsPerPeer:
		most, where = strangerCallsPerPeer, "from one address"
	case p.allStrangerCalls >= mostStrangerCalls:
		most, where = mostStrangerCalls, "from all addresses"
	}
	if most > 0 {
		return ctx, status.Errorf(codes.ResourceExhausted, "there are %d calls under way %s of callers of whom nobody knows yet who they are, and no more may be: try again in a moment", most, where)
	}
	connection.calls++
	p.strangerCalls[connection.host]++
	p.allStrangerCalls++
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		connection.calls--
		p.allStrangerCalls--
		less(p.strangerCalls, connection.host)
	})
	return ctx, nil
}

// expected reports whether the key that was proved in the handshake of a connection is that of somebody in the cluster, by what was heard of it: a node, an operator or the owner may make as many
// calls at once as anybody who was let in. It is found out once. The caller holds the lock.
func (c *peerConnection) expected(ctx context.Context, state *store.State) bool {
	if c.looked || state == nil {
		return c.expects
	}
	c.looked = true
	from, _ := peer.FromContext(ctx)
	if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		key, isKey := info.State.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
		c.expects = isKey && rules.KeyHolder(state, key) != ""
	}
	return c.expects
}

// stranger returns the connection of a call on which nobody was let in yet; nil: it is none. The caller holds the lock.
func (p *peers) stranger(ctx context.Context) *peerConnection {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil || from.LocalAddr == nil {
		return nil
	}
	return p.by[ends{local: from.LocalAddr.String(), remote: from.Addr.String()}]
}

// remembering has somebody who was told to be nobody be told so again on the same connection, without another look: the certificate is that of its handshake. The connection is
// closed soon.
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
			connection.hurry.Reset(refusedFor)
		}
		return caller, err
	}
}
