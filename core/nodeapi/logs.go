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
	if request.GetPrevious() && request.GetFollow() {
		return status.Error(codes.InvalidArgument, "nodeapi: what an earlier instance wrote cannot be followed: nothing is added to it")
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
	wanted := selection{tail: request.GetTail(), previous: request.GetPrevious()}
	if wanted.previous {
		wanted.running = s.runningInstance(role)
	}
	if since := request.GetSince(); since != nil {
		wanted.since = since.AsTime()
	}
	err := readLog(ctx, path, wanted, sender, changed)
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
	case errors.Is(err, errNoPrevious):
		return status.Errorf(codes.NotFound, "nodeapi: the log of role %s keeps nothing of an earlier instance: leave --previous out", role)
	case known:
		return err
	}
	return status.Errorf(codes.Internal, "nodeapi: the log of role %s: %v", role, err)
}

func noLog(role string) error {
	return status.Errorf(codes.NotFound, "nodeapi: role %s has no log on this node, since it never ran here: `reeve status` lists the roles of this node", role)
}

// runningInstance returns the ID of the instance of a role that runs; empty: none does.
func (s *service) runningInstance(role string) string {
	present, _ := s.config.Status.Get()
	for _, instance := range present.GetNode().GetInstances() {
		if instance.GetRole() == role {
			return instance.GetInstanceId()
		}
	}
	return ""
}

// readLog sends what is wanted of a log, and if changed is not nil goes on with what is written.
func readLog(ctx context.Context, path string, wanted selection, sender *lineSender, changed <-chan struct{}) error {
	log, err := openLog(path)
	if err != nil {
		return err
	}
	defer log.close()
	if err := log.sendThere(wanted, sender); err != nil {
		return err
	}
	if changed == nil {
		return errors.Join(sender.end(), sender.flush())
	}
	sender.skip, sender.limit = 0, 0
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
