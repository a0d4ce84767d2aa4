package management

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// storedPart is how much of a stored snapshot is sent in one message.
const storedPart = 256 << 10

// ListSnapshots implements clusterv1.ManagementServiceServer.
func (s *Service) ListSnapshots(ctx context.Context, _ *clusterv1.ListSnapshotsRequest) (*clusterv1.ListSnapshotsResponse, error) {
	state, err := s.config.Store.ReadSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	response := &clusterv1.ListSnapshotsResponse{
		Schedule: state.Demands().GetSnapshots(), Task: state.SnapshotTask, Problem: scheduled.Problem(state, s.config.Now()),
		RecoveryRecipient: state.Demands().GetRecoveryRecipient(), Signers: scheduled.Signers(state),
	}
	for _, id := range state.NodeIDs() {
		if kept := state.Snapshots[id]; kept != nil {
			response.Nodes = append(response.Nodes, kept)
		}
	}
	return response, nil
}

// GetSnapshot implements clusterv1.ManagementServiceServer.
func (s *Service) GetSnapshot(request *clusterv1.GetSnapshotRequest, stream grpc.ServerStreamingServer[clusterv1.GetSnapshotResponse]) error {
	state, err := s.readFor(stream.Context())
	if err != nil {
		return err
	}
	file, header, err := s.config.Stored.Open(request.GetName())
	if errors.Is(err, scheduled.ErrNone) {
		return s.elsewhere(stream.Context(), request.GetName())
	}
	if err != nil {
		return answer.Errorf(codes.DataLoss, "%v", err)
	}
	defer file.Close()
	if header.Manifest.ClusterID != state.Cluster.GetClusterId() {
		return answer.Errorf(codes.DataLoss, "the snapshot %s on this node is of cluster %s", quote(request.GetName()), quote(header.Manifest.ClusterID))
	}
	for part := make([]byte, storedPart); ; {
		n, err := io.ReadFull(file, part)
		if n > 0 {
			if err := stream.Send(&clusterv1.GetSnapshotResponse{Data: part[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.made(stream.Context(), false, "scheduled snapshot handed out", "name", request.GetName(), "bytes", header.Size(), "sealed_to", header.Manifest.Recipient)
			return nil
		}
		if err != nil {
			return answer.Errorf(codes.DataLoss, "cannot read the snapshot %s: %v", quote(request.GetName()), err)
		}
	}
}

// elsewhere says which node has a snapshot.
func (s *Service) elsewhere(ctx context.Context, name string) error {
	state, err := s.config.Store.ReadSnapshots(ctx)
	if err != nil {
		return err
	}
	for _, id := range state.NodeIDs() {
		for _, one := range state.Snapshots[id].GetSnapshots() {
			if one.GetName() == name {
				return answer.Errorf(codes.FailedPrecondition, "the snapshot %s is on node %s: ask that node's curator", quote(name), id)
			}
		}
	}
	return answer.Errorf(codes.NotFound, "there is no scheduled snapshot %s: `reeve store snapshot list` shows those that there are", quote(name))
}
