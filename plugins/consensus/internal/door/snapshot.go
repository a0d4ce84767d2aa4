package door

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// snapshotPart is how much of a snapshot is sent in one message.
const snapshotPart = 256 << 10

// snapshotPace is how many bytes a second are sent of one. The member, the curator and whoever reads would otherwise have all of a small machine for that time, and writes wait.
const snapshotPace = 32 << 20

// snapshotWithin is how long a snapshot that was taken may be read: a curator gives up before, unless its process stands still, and no other snapshot is taken meanwhile.
const snapshotWithin = 35 * time.Minute

// snapshots serves consensusv1.SnapshotService, to the cluster user only (see mayCall): a snapshot has what all users have stored.
type snapshots struct {
	consensusv1.UnimplementedSnapshotServiceServer
	served Store
}

// TakeSnapshot implements consensusv1.SnapshotServiceServer.
func (s *snapshots) TakeSnapshot(request *consensusv1.TakeSnapshotRequest, stream grpc.ServerStreamingServer[consensusv1.TakeSnapshotResponse]) error {
	taken, err := s.served.Snapshot(stream.Context(), store.SnapshotOptions{Recipient: request.GetRecipient(), Rehearse: request.GetRehearse()})
	if err != nil {
		return refused(err)
	}
	defer taken.Close()
	limit := time.AfterFunc(snapshotWithin, func() { _ = taken.Close() })
	defer limit.Stop()
	if err := sendRecords(taken, stream); err != nil {
		return err
	}
	if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Manifest{Manifest: taken.Manifest}}); err != nil {
		return err
	}
	pace := rate.NewLimiter(snapshotPace, snapshotPart)
	for part := make([]byte, snapshotPart); ; {
		n, err := io.ReadFull(taken, part)
		if n > 0 {
			if err := pace.WaitN(stream.Context(), n); err != nil {
				return status.Errorf(codes.Canceled, "consensus: send the snapshot: %v", err)
			}
			if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Data{Data: part[:n]}}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case errors.Is(err, os.ErrClosed):
			return status.Errorf(codes.DeadlineExceeded, "consensus: the snapshot was not read within %s", snapshotWithin)
		case err != nil:
			return status.Errorf(codes.Internal, "consensus: read the snapshot that was taken: %v", err)
		}
	}
}

// sendRecords sends what the rehearsal of a snapshot has read.
func sendRecords(taken *store.Snapshot, stream grpc.ServerStreamingServer[consensusv1.TakeSnapshotResponse]) error {
	if taken.Records == nil {
		return nil
	}
	for records := bufio.NewReader(taken.Records); ; {
		record := new(consensusv1.SnapshotRecord)
		err := protodelim.UnmarshalFrom(records, record)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Errorf(codes.Internal, "consensus: read what the rehearsal of the snapshot has read: %v", err)
		}
		if err := stream.Send(&consensusv1.TakeSnapshotResponse{Part: &consensusv1.TakeSnapshotResponse_Record{Record: record}}); err != nil {
			return err
		}
	}
}

// refused is the status of a snapshot that was not taken.
func refused(err error) error {
	code := codes.Internal
	for reason, its := range map[error]codes.Code{
		store.ErrRecipient: codes.InvalidArgument, store.ErrUnderway: codes.ResourceExhausted, store.ErrUnfit: codes.FailedPrecondition, store.ErrNotNow: codes.Unavailable, store.ErrRehearsal: codes.DataLoss,
		context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded,
	} {
		if errors.Is(err, reason) {
			code = its
		}
	}
	said := status.Newf(code, "consensus: %v", err)
	if errors.Is(err, store.ErrNoRoom) {
		// Who keeps snapshots on the same disk can make room.
		info := &errdetails.ErrorInfo{Reason: consensusv1.NoRoom, Domain: consensusv1.SnapshotService_ServiceDesc.ServiceName}
		if short := (*store.ShortError)(nil); errors.As(err, &short) {
			info.Metadata = map[string]string{consensusv1.NoRoomMissing: strconv.FormatInt(short.Missing, 10)}
		}
		if told, err := said.WithDetails(info); err == nil {
			said = told
		}
	}
	return said.Err()
}
