package nodeapi

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/events"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// WatchEvents implements the RPC.
func (s *service) WatchEvents(request *nodev1.WatchEventsRequest, stream grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
	reader := s.config.Events.Read(events.Query{After: request.GetAfter(), Tail: request.GetTail(), Follow: request.GetFollow()})
	defer reader.Close()
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	for {
		next, err := reader.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case s.stopping.Err() != nil:
			return s.errEnding()
		case stream.Context().Err() != nil:
			return status.FromContextError(stream.Context().Err()).Err()
		case err != nil:
			return status.Errorf(codes.Internal, "nodeapi: the journal of events cannot be read: %v", err)
		}
		if err := stream.Send(&nodev1.WatchEventsResponse{Events: next}); err != nil {
			return err
		}
	}
}

// untilStop returns a context that ends with the given one, and when the server begins to stop.
func (s *Server) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	leave := context.AfterFunc(s.stopping, cancel)
	return ctx, func() {
		leave()
		cancel()
	}
}
