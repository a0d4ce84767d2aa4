package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// snapshots plays the store's member as far as it takes snapshots. What is in one is no database.
type snapshots struct{ cluster *Cluster }

// snapshotPayload stands in the place of one that is compressed and sealed.
const snapshotPayload = "what is in a snapshot"

// TakeSnapshot implements consensusv1.SnapshotServiceClient.
func (s snapshots) TakeSnapshot(_ context.Context, request *consensusv1.TakeSnapshotRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[consensusv1.TakeSnapshotResponse], error) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(snapshotPayload)))
	manifest := snapshot.Manifest{
		ClusterID: s.cluster.clusterID, NodeID: s.cluster.nodeID, MemberID: "8e9e05c52164694d", Time: s.cluster.now().Add(-time.Minute).UTC(), Revision: 4711, CompactRevision: 42,
		ReeveVersion: "0.1.0", StorageVersion: "3.7.0", Compression: snapshot.Compression, Recipient: request.GetRecipient(),
		DatabaseSize: 20480, DatabaseSHA256: sum, PayloadSize: int64(len(snapshotPayload)), PayloadSHA256: sum,
	}
	line, err := manifest.Marshal()
	return &snapshotStream{parts: []*consensusv1.TakeSnapshotResponse{
		{Part: &consensusv1.TakeSnapshotResponse_Manifest{Manifest: line}}, {Part: &consensusv1.TakeSnapshotResponse_Data{Data: []byte(snapshotPayload)}},
	}}, err
}

type snapshotStream struct {
	grpc.ClientStream
	parts []*consensusv1.TakeSnapshotResponse
}

// Recv implements grpc.ServerStreamingClient.
func (s *snapshotStream) Recv() (*consensusv1.TakeSnapshotResponse, error) {
	if len(s.parts) == 0 {
		return nil, io.EOF
	}
	next := s.parts[0]
	s.parts = s.parts[1:]
	return next, nil
}
