package service

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// ReceiveSnapshot keeps the snapshot of which Form makes the member.
func (s *Service) ReceiveSnapshot(stream grpc.ClientStreamingServer[consensusv1.ReceiveSnapshotRequest, consensusv1.ReceiveSnapshotResponse]) error {
	ctx := stream.Context()
	r, err := s.wait(ctx)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if r.store.Load() == nil {
		err = store.Receive(ctx, r.receives, first.GetManifest(), &parts{stream: stream})
	}
	switch {
	case err == nil:
		return stream.SendAndClose(&consensusv1.ReceiveSnapshotResponse{})
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, store.ErrSnapshot):
		return status.Errorf(codes.InvalidArgument, "consensus: %v", err)
	case errors.Is(err, store.ErrUnfit):
		return status.Errorf(codes.FailedPrecondition, "consensus: the snapshot cannot be taken: %v", err)
	}
	return status.Errorf(codes.Internal, "consensus: take the snapshot: %v", err)
}

// parts are the bytes that come on a stream.
type parts struct {
	stream grpc.ClientStreamingServer[consensusv1.ReceiveSnapshotRequest, consensusv1.ReceiveSnapshotResponse]
	left   []byte
}

// Read implements io.Reader.
func (p *parts) Read(into []byte) (int, error) {
	for len(p.left) == 0 {
		next, err := p.stream.Recv()
		if err != nil {
			return 0, err
		}
		p.left = next.GetData()
	}
	n := copy(into, p.left)
	p.left = p.left[n:]
	return n, nil
}

var _ io.Reader = (*parts)(nil)
