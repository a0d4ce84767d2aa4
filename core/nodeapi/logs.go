package nodeapi

import (
	"context"
	"errors"
	"io/fs"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// ReadLog implements the RPC.
func (s *service) ReadLog(request *nodev1.ReadLogRequest, stream grpc.ServerStreamingServer[nodev1.ReadLogResponse]) error {
	role := request.GetRole()
	if err := checkRole(role); err != nil {
		return err
	}
	path, ok := s.config.LogPath(role)
	if !ok {
		return noLog(role)
	}
	var changed <-chan struct{}
	if request.GetFollow() {
		// Before the log is looked at, so that no change is missed.
		watch, err := s.logs.Name(path)
		if err != nil {
			return noLog(role)
		}
		defer watch.Stop()
		if changed = watch.Changed; watch.Polled != nil {
			s.config.Log.Warn("the log that a client follows is looked at again and again, since the kernel does not tell of its changes", "role", role, "error", watch.Polled)
		}
	}
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	sender := &lineSender{ctx: ctx, send: func(data []byte) error {
		return stream.Send(&nodev1.ReadLogResponse{Data: data})
	}}
	err := readLog(ctx, path, request, sender, changed)
	_, known := status.FromError(err)
	switch {
	case err == nil:
		return nil
	case s.stopping.Err() != nil:
		return s.errEnding()
	case stream.Context().Err() != nil:
		return status.FromContextError(stream.Context().Err()).Err()
	case errors.Is(err, fs.ErrNotExist):
		return noLog(role)
	case known:
		return err
	}
	return status.Errorf(codes.Internal, "nodeapi: the log of role %s: %v", role, err)
}

func noLog(role string) error {
	return status.Errorf(codes.NotFound, "nodeapi: role %s has no log on this node, since it never ran here: `reeve status` lists the roles of this node", role)
}

// readLog sends what is asked for of a log.
func readLog(ctx context.Context, path string, request *nodev1.ReadLogRequest, sender *lineSender, changed <-chan struct{}) error {
	log, err := openLog(path)
	if err != nil {
		return err
	}
	defer log.close()
	if err := log.sendThere(request.GetTail(), sender); err != nil {
		return err
	}
	if !request.GetFollow() {
		return errors.Join(sender.end(), sender.flush())
	}
	for {
		if err := log.catchUp(sender); err != nil {
			return err
		}
		if err := sender.flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
