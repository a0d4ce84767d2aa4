package nodeapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/outgoing"
)

const (
	// maxUnread is how many bytes of answers may wait until a client reads them, on all of its connections: two of the largest.
	maxUnread = 32 << 20
	// answerHolds is what is kept of an answer beside its bytes.
	answerHolds = 4 << 10
)

// keepUnary counts the answer of a call until it was read.
func keepUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	if err != nil {
		return nil, err
	}
	return kept(ctx, answer)
}

// kept counts what a call is sent over TCP until it was read, or its connection has ended. It fails if the client has too much to read already. On the local socket nothing is counted: who uses it may do anything with the core.
func kept(ctx context.Context, answer any) (any, error) {
	from, _ := peer.FromContext(ctx)
	message, is := answer.(proto.Message)
	if from == nil || !is {
		return answer, nil
	}
	call, is := from.Addr.(origin)
	if !is || !call.by.crowd.bounded {
		return answer, nil
	}
	bytes := answerHolds + proto.Size(message)
	if err := call.by.hold(bytes); err != nil {
		return nil, err
	}
	encoded, err := outgoing.Encode(message)
	if err != nil {
		call.by.read(bytes)
		return nil, status.Errorf(codes.Internal, "nodeapi: encode the answer: %v", err)
	}
	return &outgoing.Message{Bytes: encoded, Sent: func() { call.by.read(bytes) }}, nil
}

// hold counts bytes that the client has not read.
func (g *guest) hold(bytes int) error {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.left {
		return status.Error(codes.Unavailable, "nodeapi: the connection has ended")
	}
	if held := g.crowd.unread[g.who]; held+bytes > maxUnread {
		return status.Errorf(codes.ResourceExhausted, "nodeapi: %d MiB of answers wait until this client reads them, and %d MiB may: read the answers of former calls, or close their connections",
			held>>20, maxUnread>>20)
	}
	g.unread += bytes
	g.crowd.unread[g.who] += bytes
	return nil
}

// read counts bytes no more. What was not read on a connection that has ended is not counted already.
func (g *guest) read(bytes int) {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if !g.left {
		g.forget(bytes)
	}
}

// forget counts so many bytes less. mu is held.
func (g *guest) forget(bytes int) {
	g.unread -= bytes
	if g.crowd.unread[g.who] -= bytes; g.crowd.unread[g.who] == 0 {
		delete(g.crowd.unread, g.who)
	}
}
