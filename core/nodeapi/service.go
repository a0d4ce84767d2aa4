package nodeapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// service is the RPCs.
type service struct {
	nodev1.UnimplementedNodeServiceServer
	*Server
}

// errStopping ends the calls that would go on for ever when the core stops.
var errStopping = status.Error(codes.Unavailable, "nodeapi: the core of this node is stopping")

// GetStatus implements the RPC.
func (s *service) GetStatus(context.Context, *nodev1.GetStatusRequest) (*nodev1.GetStatusResponse, error) {
	present, ok := s.config.Status.Get()
	if !ok {
		return nil, status.Error(codes.Unavailable, "nodeapi: the core is starting and has no status yet: try again")
	}
	return &nodev1.GetStatusResponse{Status: present}, nil
}

// maxCurators is how many curators another node is told.
const maxCurators = 16

// ListCurators implements the RPC.
func (s *service) ListCurators(context.Context, *nodev1.ListCuratorsRequest) (*nodev1.ListCuratorsResponse, error) {
	present, _ := s.config.Status.Get()
	curators := present.GetCluster().GetCurators()
	return &nodev1.ListCuratorsResponse{Curators: curators[:min(len(curators), maxCurators)]}, nil
}

// WatchStatus implements the RPC.
func (s *service) WatchStatus(_ *nodev1.WatchStatusRequest, stream grpc.ServerStreamingServer[nodev1.WatchStatusResponse]) error {
	watcher := s.config.Status.Watch()
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopping.Done():
			return s.errEnding()
		case <-watcher.Changed():
		}
		newest, err := watcher.Next(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if err := stream.Send(&nodev1.WatchStatusResponse{Status: newest}); err != nil {
			return err
		}
	}
}
