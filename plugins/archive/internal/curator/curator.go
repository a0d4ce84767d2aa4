package curator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/role"
)

// Role is the role that serves the cluster API.
const Role = "curator"

const (
	listTime = 30 * time.Second
	// maxTries is how often in a row reading is tried where nothing comes any more. pause is the wait before the second try; it doubles with each.
	maxTries = 6
	pause    = 500 * time.Millisecond
)

// The reasons why a snapshot cannot be read that are no fault of it, by errors.Is.
var (
	// ErrNone says that the curator does not have it any more.
	ErrNone = errors.New("the curator does not have it any more")
	// ErrAway says that nothing can be read from the curator for now.
	ErrAway = errors.New("the curator does not answer")
)

// Dialer connects to other roles: a *role.Host.
type Dialer interface {
	NodeID() string
	Dial(ctx context.Context, role, nodeID, endpoint string) (net.Conn, error)
}

// Snapshot is a good scheduled snapshot.
type Snapshot struct {
	snapshot.Name
	// Bytes is the size of its file.
	Bytes int64
}

// Curator is the curator of the node.
type Curator struct {
	conn   *grpc.ClientConn
	client archivev1.ArchiveServiceClient
}

// Open returns the curator of the dialer's node. It connects when something is asked for. The caller closes it.
func Open(dialer Dialer) (*Curator, error) {
	conn, err := grpc.NewClient("passthrough:///"+Role, grpc.WithTransportCredentials(role.Credentials()),
		// Who asks has pauses of its own.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}, MinConnectTimeout: listTime,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.Dial(ctx, Role, dialer.NodeID(), archivev1.Endpoint)
		}))
	if err != nil {
		return nil, err
	}
	return &Curator{conn: conn, client: archivev1.NewArchiveServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Curator) Close() error { return c.conn.Close() }

// List returns the snapshots, the newest first.
func (c *Curator) List(ctx context.Context) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	listed, err := c.client.ListSnapshots(ctx, &archivev1.ListSnapshotsRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, fmt.Errorf("cannot list the snapshots of this node's curator: %w", explain(err))
	}
	var found []Snapshot
	for _, one := range listed.GetSnapshots() {
		if name, ok := snapshot.ParseName(one.GetName()); ok && one.GetBytes() > 0 {
			found = append(found, Snapshot{Name: name, Bytes: one.GetBytes()})
		}
	}
	return found, nil
}

// Read returns the file of a snapshot. The reader fails before its last byte if the file is not what its header says. The caller closes it.
func (c *Curator) Read(ctx context.Context, one Snapshot) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	from := &reader{ctx: ctx, client: c.client, name: one.String()}
	whole, err := newWhole(from, one.Bytes)
	if err != nil {
		cancel()
		if from.failed != nil {
			err = from.failed // what cannot be read is not damaged
		}
		return nil, err
	}
	return &closer{Reader: whole, cancel: cancel}, nil
}

type closer struct {
	io.Reader
	cancel func()
}

// Close implements io.Closer.
func (c *closer) Close() error {
	c.cancel()
	return nil
}

// reader reads a file from the curator, and goes on where it was after a connection was lost.
type reader struct {
	ctx    context.Context
	client archivev1.ArchiveServiceClient
	name   string
	stream grpc.ServerStreamingClient[archivev1.GetSnapshotResponse]
	offset int64
	left   []byte
	tries  int
	failed error
}

// Read implements io.Reader.
func (r *reader) Read(into []byte) (int, error) {
	for len(r.left) == 0 {
		part, err := r.next()
		switch {
		case err == nil:
			r.left, r.tries = part.GetData(), 0
		case err == io.EOF || r.ctx.Err() != nil:
			return 0, err
		case !passes(err) || r.tries >= maxTries:
			r.failed = explain(err)
			return 0, r.failed
		default:
			r.stream = nil
			timer := time.NewTimer(pause << r.tries)
			r.tries++
			select {
			case <-timer.C:
			case <-r.ctx.Done():
			}
			timer.Stop()
		}
	}
	n := copy(into, r.left)
	r.left = r.left[n:]
	r.offset += int64(n)
	return n, nil
}

func (r *reader) next() (*archivev1.GetSnapshotResponse, error) {
	if r.stream == nil {
		stream, err := r.client.GetSnapshot(r.ctx, &archivev1.GetSnapshotRequest{Name: r.name, Offset: r.offset})
		if err != nil {
			return nil, err
		}
		r.stream = stream
	}
	return r.stream.Recv()
}

// passes reports whether the curator may answer in a moment.
func passes(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.ResourceExhausted
}

// explain says what a call has failed by.
func explain(err error) error {
	said := status.Convert(err).Message()
	switch {
	case status.Code(err) == codes.Unimplemented:
		return errors.New("the curator is of a version that hands out no snapshots: upgrade it")
	case status.Code(err) == codes.NotFound:
		return ErrNone
	case passes(err):
		return fmt.Errorf("%w: %s", ErrAway, said)
	}
	return errors.New(said)
}
