package scheduled

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

const (
	// tryAgainEvery is how soon a member is asked again that starts anew, has no quorum for a moment, or takes a snapshot for somebody else, and tryAgainFor for how long.
	tryAgainEvery = 5 * time.Second
	tryAgainFor   = 5 * time.Minute
)

// errKeyChanged says that the recovery key was changed while a snapshot was taken, which the key of now would not open.
var errKeyChanged = errors.New("the recovery key of the cluster was changed while it was taken")

// recipient is the recovery key to which a snapshot is sealed, as this curator knows it now.
func (r *runner) recipient() string {
	now, _ := r.config.Snapshots.Get()
	return now.Demands().GetRecoveryRecipient()
}

// take takes a snapshot. Where there is no room for it, the oldest ones go, but for the last, if that gives the room.
func (r *runner) take(ctx context.Context, state *store.State, task *clusterv1.SnapshotTask) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptWithin, fmt.Errorf("it was not complete within %s", attemptWithin))
	defer cancel()
	for began := time.Now(); ; {
		err := r.attempt(ctx, state, task)
		switch {
		case err == nil:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case lacksRoom(err):
			removed, problem := r.directory.makeRoom(missing(err))
			if problem != nil {
				r.config.Log.Warn("the older scheduled snapshots on this node are kept", "error", problem)
			}
			if removed == 0 {
				return err // on its own: a failure has room for one sentence, and its end says what to do
			}
			r.config.Log.Warn("there is no room for a scheduled snapshot; the oldest ones were removed", "removed", removed, "error", err)
		case errors.Is(err, errKeyChanged):
			began = time.Now() // the member may still end what it was told to give up
			r.config.Log.Info("the recovery key of the cluster was changed while a scheduled snapshot was taken; taking it again")
		case passes(err) && time.Since(began) < tryAgainFor:
			r.config.Log.Debug("the member cannot take a snapshot now; trying again", "error", err)
			timer := time.NewTimer(tryAgainEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		default:
			return err
		}
	}
}

// passes reports whether a member may take a snapshot in a moment that it has not taken now.
func passes(err error) bool {
	var refused *memberError
	return errors.As(err, &refused) && (refused.status.Code() == codes.Unavailable || refused.status.Code() == codes.ResourceExhausted)
}

func lacksRoom(err error) bool { return errors.Is(err, errNoRoom) || noRoomInfo(err) != nil }

// missing is how many bytes are missing for a snapshot; 0: that is not known.
func missing(err error) uint64 {
	if short := (*shortError)(nil); errors.As(err, &short) {
		return short.missing
	}
	bytes, _ := strconv.ParseUint(noRoomInfo(err).GetMetadata()[consensusv1.NoRoomMissing], 10, 64)
	return bytes
}

// noRoomInfo is what the member says about the room that it lacks; nil: it lacks none.
func noRoomInfo(err error) *errdetails.ErrorInfo {
	var refused *memberError
	if !errors.As(err, &refused) {
		return nil
	}
	for _, detail := range refused.status.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetReason() == consensusv1.NoRoom {
			return info
		}
	}
	return nil
}

// attempt has the member take and rehearse a snapshot, reads the cluster's records in it, and stores it.
func (r *runner) attempt(ctx context.Context, state *store.State, task *clusterv1.SnapshotTask) error {
	ctx, cancel := context.WithCancel(ctx) // so that the member does not wait for who reads no more
	defer cancel()
	recipient := r.recipient()
	if recipient == "" {
		return errors.New("the cluster knows no recovery key: set it with `reeve policy set recovery-recipient=age1…`")
	}
	stream, err := r.config.Member.TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{Recipient: recipient, Rehearse: true})
	if err != nil {
		return ofMember(err)
	}
	line, err := readRecords(stream)
	if err != nil {
		return err
	}
	manifest, err := snapshot.ParseManifest(line.manifest)
	switch {
	case err != nil:
		return fmt.Errorf("what the member has taken cannot be used: %w", err)
	case manifest.ClusterID != state.Cluster.GetClusterId() || manifest.Recipient != recipient:
		return fmt.Errorf("the member has taken another snapshot than it was asked for, of cluster %q", manifest.ClusterID)
	case manifest.Rehearsal == nil:
		return errors.New("the member has not rehearsed it: the role that provides the store on this node is of a former version: upgrade it")
	case manifest.Rehearsal.Records != line.copied.Records:
		return fmt.Errorf("%d records of the cluster came out of it, of %d", line.copied.Records, manifest.Rehearsal.Records)
	}
	if err := line.copied.Check(); err != nil {
		return fmt.Errorf("the records of the cluster in it cannot be read: %w", err)
	}
	authority, err := ca.Load(ctx, r.config.Store)
	if err != nil {
		return err
	}
	header, err := authority.SignSnapshot(line.manifest)
	if err != nil {
		return err
	}
	if r.recipient() != recipient {
		return errKeyChanged
	}
	return r.directory.Write(task, header, &payload{stream: stream})
}

// beginning is what comes before the payload.
type beginning struct {
	manifest []byte
	copied   *store.Copied
}

func readRecords(stream grpc.ServerStreamingClient[consensusv1.TakeSnapshotResponse]) (*beginning, error) {
	read := &beginning{copied: store.NewCopied()}
	for {
		part, err := stream.Recv()
		if err != nil {
			return nil, ofMember(err)
		}
		record := part.GetRecord()
		if record == nil {
			read.manifest = part.GetManifest()
			return read, nil
		}
		read.copied.Add(record.GetKey(), record.GetValue())
	}
}

// memberError is what the store's member says.
type memberError struct{ status *status.Status }

func (e *memberError) Error() string { return e.status.Message() }

func ofMember(err error) error {
	if code := status.Code(err); code == codes.Unimplemented || code == codes.PermissionDenied {
		return errors.New("the role that provides the store on this node is of a version that takes no snapshots: upgrade it")
	}
	return &memberError{status.Convert(err)}
}

// payload is what comes after the manifest.
type payload struct {
	stream grpc.ServerStreamingClient[consensusv1.TakeSnapshotResponse]
	left   []byte
}

// Read implements io.Reader.
func (p *payload) Read(into []byte) (int, error) {
	for len(p.left) == 0 {
		part, err := p.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, ofMember(err)
		}
		p.left = part.GetData()
	}
	n := copy(into, p.left)
	p.left = p.left[n:]
	return n, nil
}
