package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/sdk/held"
)

// bounds is what callers may have the curator hold, each on all of its connections, and all of them, of whom there may be many: a quarter of what the curator may use. Eight of the largest requests of one caller may be incomplete.
// Each snapshot of the cluster wakes each stream. Its calls may hold four lists of a thousand nodes with all that can be said of each.
var bounds = held.Config{
	Unfinished: 8 * maxRequest, AllUnfinished: 256 << 20, Held: 64 << 20, AllUnread: 256 << 20, Call: 64 << 10, Answer: 4 << 10,
	Streams: 64,
	Refusal: func(caller string, held, streams int) error {
		return answer.Errorf(codes.ResourceExhausted, "%s holds %d MiB in this curator with calls that are under way and with answers that were not read, and may hold 64 MiB; and has %d streams, and may have 64: "+
			"read the answers of former calls, or close their connections, and make fewer calls at once", caller, held>>20, streams)
	},
}

// belongs takes note of who the caller on a connection is. It is the same for all of its calls, by the certificate of its handshake.
func belongs(ctx context.Context, caller string) {
	if connection := held.ConnectionOf(ctx); connection != nil {
		connection.Belongs(caller)
	}
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

// turn has a call wait for its turn.
func (p *peers) turn(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	end, err := p.takeTurn(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, request)
}
