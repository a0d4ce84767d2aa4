package management

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// snapshotWithin is how long a snapshot may take, up to its last byte: a member takes one at a time, so whoever reads slowly keeps the others waiting.
const snapshotWithin = 30 * time.Minute

var errSlowReader = answer.Errorf(codes.DeadlineExceeded, "the snapshot was not complete within %s: the member was slow to take it, or this connection is slow: try again", snapshotWithin)

// StreamSnapshot implements clusterv1.ManagementServiceServer.
func (s *Service) StreamSnapshot(_ *clusterv1.StreamSnapshotRequest, stream grpc.ServerStreamingServer[clusterv1.StreamSnapshotResponse]) error {
	state, err := s.readFor(stream.Context())
	if err != nil {
		return err
	}
	recipient := state.Demands().GetRecoveryRecipient()
	if recipient == "" {
		return answer.Errorf(codes.FailedPrecondition, "the snapshot cannot be sealed: the cluster knows no recovery key: the owner sets it with `reeve policy set recovery-recipient=age1…` "+
			"(`reeve recovery-key new FILE` makes one), or takes a snapshot that is not sealed with --unencrypted")
	}
	return s.streamSnapshot(stream.Context(), state, recipient, func(data []byte) error {
		return stream.Send(&clusterv1.StreamSnapshotResponse{Data: data})
	})
}

// StreamUnencryptedSnapshot implements clusterv1.ManagementServiceServer.
func (s *Service) StreamUnencryptedSnapshot(_ *clusterv1.StreamUnencryptedSnapshotRequest, stream grpc.ServerStreamingServer[clusterv1.StreamUnencryptedSnapshotResponse]) error {
	state, err := s.readFor(stream.Context())
	if err != nil {
		return err
	}
	return s.streamSnapshot(stream.Context(), state, "", func(data []byte) error {
		return stream.Send(&clusterv1.StreamUnencryptedSnapshotResponse{Data: data})
	})
}

// readFor reads the records for a caller who stands in them.
func (s *Service) readFor(ctx context.Context) (*store.State, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	caller, _ := auth.CallerOf(ctx)
	return state, caller.Check(state)
}

// streamSnapshot sends a snapshot, as it comes from the store's member on this node, behind a header that the cluster CA has signed.
func (s *Service) streamSnapshot(ctx context.Context, state *store.State, recipient string, send func([]byte) error) error {
	if s.config.StoreSnapshots == nil {
		return errNoSnapshots
	}
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotWithin, errSlowReader)
	defer cancel()
	parts, err := s.config.StoreSnapshots.TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{Recipient: recipient})
	if err != nil {
		return snapshotFailed(err)
	}
	first, err := parts.Recv()
	if err != nil {
		return snapshotFailed(err)
	}
	header, err := s.signSnapshot(ctx, state, recipient, first.GetManifest())
	if err != nil {
		return err
	}
	if err := send(header.Marshal()); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- sendParts(parts, send) }()
	select {
	case err := <-sent:
		if err == nil {
			s.made(ctx, false, "snapshot of the store taken", "revision", header.Manifest.Revision, "bytes", header.Size(), "sealed_to", cmp.Or(recipient, "nobody"))
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // a send that a caller holds up by not reading ends with the stream
	}
}

// sendParts sends what comes after the manifest.
func sendParts(parts grpc.ServerStreamingClient[consensusv1.TakeSnapshotResponse], send func([]byte) error) error {
	for {
		part, err := parts.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return snapshotFailed(err)
		}
		if err := send(part.GetData()); err != nil {
			return err
		}
	}
}

// signSnapshot signs a manifest, if it is of this cluster and of what was asked for.
func (s *Service) signSnapshot(ctx context.Context, state *store.State, recipient string, line []byte) (*snapshot.Header, error) {
	manifest, err := snapshot.ParseManifest(line)
	if err != nil {
		return nil, answer.Errorf(codes.Internal, "the store's member on this node has taken a snapshot that cannot be used: %v", err)
	}
	if manifest.ClusterID != state.Cluster.GetClusterId() || manifest.Recipient != recipient {
		return nil, answer.Errorf(codes.Internal, "the store's member on this node has taken another snapshot than it was asked for, of cluster %s", quote(manifest.ClusterID))
	}
	authority, err := ca.Load(ctx, s.config.Store)
	if err != nil {
		return nil, err
	}
	return authority.SignSnapshot(line)
}

var errNoSnapshots = answer.Errorf(codes.FailedPrecondition, "the role that provides the store on this curator's node is of a version that takes no snapshots: upgrade it")

// snapshotFailed is what a caller is told of an error of the store's member.
func snapshotFailed(err error) error {
	told := status.Convert(err)
	if told.Code() == codes.Unimplemented || told.Code() == codes.PermissionDenied {
		return errNoSnapshots
	}
	return answer.Errorf(told.Code(), "%s", told.Message())
}
