package server

import (
	"context"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
)

const (
	// callerUnfinished is how many bytes may have come of requests of one caller that are not complete, on all of its connections: eight of the largest requests. gRPC holds them all, and no call of
	// whoever stops in the midst of them ever ends.
	callerUnfinished = 8 * maxRequest
	// mostUnfinished is how many there may be of all callers, of whom there may be many: a quarter of what the curator may use.
	mostUnfinished = 256 << 20
)

// unfinished is the bytes of requests that are not complete, on one connection. It is guarded by the lock of peers.
type unfinished struct {
	// requests is how many have begun, and bytes what has come on the connection since the first of them did, but for those that are complete. What is around them is counted too.
	requests, bytes int
	// caller is who was let in on the connection; empty: nobody was yet.
	caller string
}

// connectionOf returns the connection of a call, which may have left; nil: it has none that is counted.
func connectionOf(ctx context.Context) *peerConnection {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	address, _ := from.Addr.(peerAddress)
	return address.connection
}

type requestKey struct{}

// request is one that is counted. Its fields are guarded by the lock of peers.
type request struct {
	connection *peerConnection
	// goesOn says that another one follows on it, which is part of the same call; ended that it is not counted any more.
	goesOn, ended bool
	// answered says that its status is on the way, behind its answers.
	answered bool
}

// begins counts a request until it is complete, or its call has ended. The caller holds the lock.
func (p *peers) begins(ctx context.Context, connection *peerConnection) context.Context {
	connection.unfinished.requests++
	asked := &request{connection: connection}
	ctx = context.WithValue(ctx, requestKey{}, asked)
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		asked.goesOn = false
		p.complete(asked, 0)
	})
	return ctx
}

// complete ends the count of a request of so many bytes. The caller holds the lock.
func (p *peers) complete(asked *request, size int) {
	if asked.ended {
		return
	}
	connection := asked.connection
	if connection.unfinished.requests--; connection.unfinished.requests == 0 {
		size = connection.unfinished.bytes
	}
	p.hold(connection, -min(size, connection.unfinished.bytes))
	if asked.goesOn {
		connection.unfinished.requests++
	} else {
		asked.ended = true
	}
}

// belongs takes note of who the caller on a connection is. It is the same for all of its calls, by the certificate of its handshake.
func (p *peers) belongs(ctx context.Context, caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	connection := connectionOf(ctx)
	if connection == nil || connection.ended || connection.unfinished.caller != "" {
		return
	}
	connection.unfinished.caller = caller
	p.unfinished[caller] += connection.unfinished.bytes
}

// hold has a connection hold so many bytes more. The caller holds the lock.
func (p *peers) hold(connection *peerConnection, bytes int) {
	connection.unfinished.bytes += bytes
	p.allUnfinished += bytes
	if caller := connection.unfinished.caller; caller != "" {
		if p.unfinished[caller] += bytes; p.unfinished[caller] == 0 {
			delete(p.unfinished, caller)
		}
	}
}

// came counts bytes that have come on a connection. Who has more unfinished requests than anybody needs loses the connection; where all together have, the one that holds the most is closed.
// The caller holds the lock.
func (p *peers) came(connection *peerConnection, bytes int) {
	if connection.unfinished.requests == 0 || connection.ended {
		return
	}
	p.hold(connection, bytes)
	if p.unfinished[connection.unfinished.caller] > callerUnfinished {
		p.end(connection)
	}
	if p.allUnfinished <= mostUnfinished {
		return
	}
	var most *peerConnection
	for other := range p.all {
		if !other.ended && (most == nil || other.unfinished.bytes > most.unfinished.bytes) {
			most = other
		}
	}
	if most != nil {
		p.end(most)
	}
}

// TagRPC implements stats.Handler.
func (p *peers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler: it hears of requests that are complete, of calls that have more than one, and of their end.
func (p *peers) HandleRPC(ctx context.Context, what stats.RPCStats) {
	switch what.(type) {
	case *stats.Begin, *stats.InPayload, *stats.OutTrailer, *stats.End:
	default:
		return // of what is sent there is much
	}
	asked, is := ctx.Value(requestKey{}).(*request)
	if !is {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch what := what.(type) {
	case *stats.Begin:
		asked.goesOn = what.IsClientStream
	case *stats.InPayload:
		p.complete(asked, what.WireLength)
	case *stats.OutTrailer:
		asked.answered = true
	case *stats.End:
		p.callEnded(asked)
	}
}

// TagConn implements stats.Handler.
func (p *peers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (p *peers) HandleConn(context.Context, stats.ConnStats) {}
