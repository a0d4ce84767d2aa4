package archive

import (
	"context"
	"errors"
	"io"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

// part is how much of a snapshot is sent in one message.
const part = 256 << 10

// check returns an error unless the role archive of this node calls.
func (c Config) check(ctx context.Context) error {
	if peer, ok := role.PeerFromContext(ctx); !ok || peer.Role != archivev1.Role || peer.NodeID != c.NodeID {
		return status.Errorf(codes.PermissionDenied, "only the role %s of node %s is given the snapshots of that node: ask the curator of your own node", archivev1.Role, c.NodeID)
	}
	return nil
}

type service struct {
	archivev1.UnimplementedArchiveServiceServer
	directory *scheduled.Directory
	log       hclog.Logger
	// reading has a place for each snapshot that may be read at a time.
	reading chan struct{}
}

// ListSnapshots implements archivev1.ArchiveServiceServer.
func (s *service) ListSnapshots(context.Context, *archivev1.ListSnapshotsRequest) (*archivev1.ListSnapshotsResponse, error) {
	found, err := s.directory.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	response := new(archivev1.ListSnapshotsResponse)
	for _, one := range found {
		response.Snapshots = append(response.Snapshots, &archivev1.Snapshot{Name: one.GetName(), Bytes: one.GetBytes()})
	}
	return response, nil
}

// GetSnapshot implements archivev1.ArchiveServiceServer.
func (s *service) GetSnapshot(request *archivev1.GetSnapshotRequest, stream grpc.ServerStreamingServer[archivev1.GetSnapshotResponse]) error {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	default:
		return status.Errorf(codes.ResourceExhausted, "%d snapshots are being read already: try again later", maxReading)
	}
	file, header, err := s.directory.Open(request.GetName())
	if errors.Is(err, scheduled.ErrNone) {
		return status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return status.Error(codes.DataLoss, err.Error())
	}
	defer func() { _ = file.Close() }()
	if offset := request.GetOffset(); offset < 0 || offset > header.Size() {
		return status.Errorf(codes.OutOfRange, "the snapshot has %d bytes, and offset %d is not in it", header.Size(), offset)
	}
	if _, err := file.Seek(request.GetOffset(), io.SeekStart); err != nil {
		return status.Errorf(codes.DataLoss, "cannot read the snapshot: %v", err)
	}
	for data := make([]byte, part); ; {
		n, err := io.ReadFull(file, data)
		if n > 0 {
			if err := stream.Send(&archivev1.GetSnapshotResponse{Data: data[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.log.Info("handed a scheduled snapshot to the role archive", "name", request.GetName(), "bytes", header.Size())
			return nil
		}
		if err != nil {
			return status.Errorf(codes.DataLoss, "cannot read the snapshot: %v", err)
		}
	}
}
