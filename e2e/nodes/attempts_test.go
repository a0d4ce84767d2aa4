package nodes_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// attempt is a way in by something that was stolen.
type attempt struct {
	what string
	// open opens it, and returns what waits until the other side has ended it.
	open func(context.Context) (wait func() error, err error)
	// refused opens another one, and says how that is refused; nil: it is not.
	refused func(context.Context) error
}

// attempts are the ways in at one node.
func (own *thief) attempts(t *testing.T, number int, at devcluster.Status, peers string) []attempt {
	t.Helper()
	address := func(role, endpoint string) string {
		for _, e := range at.Role(role).Endpoints {
			if e.Name == endpoint {
				return e.Address
			}
		}
		t.Fatalf("node %d: the role %s does not serve %s: %s", number, role, endpoint, at)
		return ""
	}
	name := func(what string) string { return fmt.Sprintf("%s of node %d", what, number) }
	curator := address("curator", "reeve.cluster.v1")
	return []attempt{
		own.watching(t, name("curator, the watch by the SVID"), curator, own.node),
		own.watching(t, name("curator, the watch by the node key"), curator, selfSigned(t, own.nodeKey)),
		own.enrolling(t, name("curator, the calls of a machine that enrols"), curator),
		own.asking(t, name("the node's own API, the node key"), at.Node.APIAddress),
		connecting(name("store, the peer certificate"), peers, own.member, "http/1.1"),
		connecting(name("Listen, the SVID of a role"), address("courier", "post"), own.role, answeredProtocol),
	}
}

// peerAddress is where the member of the store of a node listens for the other members: it shows that to them only.
func peerAddress(t *testing.T, c *couriers, number int, now devcluster.Status) string {
	t.Helper()
	all, err := procfs.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, e := range now.Role("consensus").Endpoints {
		shown[e.Address] = true
	}
	for _, process := range fleet.Instance(t, c.Cluster, c.id(number), "consensus") {
		of, err := process.Of(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, listener := range of {
			if address := listener.Local.String(); !shown[address] {
				return address
			}
		}
	}
	t.Fatalf("the member of the store of node %d listens for no other: %s", number, now)
	return ""
}

// watching is the watch of a node at a curator.
func (own *thief) watching(t *testing.T, what, address string, certificate tls.Certificate) attempt {
	kept := curatorAt(t, address, "", certificate)
	t.Cleanup(func() { _ = kept.Close() })
	open := func(ctx context.Context, conn *grpc.ClientConn) (func() error, error) {
		stream, err := clusterv1.NewNodeServiceClient(conn).Watch(own.asNode(ctx), &clusterv1.WatchRequest{})
		if err != nil {
			return nil, err
		}
		if _, err := stream.Recv(); err != nil {
			return nil, err
		}
		return func() error {
			return toldAndClosed(ctx, conn, func() error { _, err := stream.Recv(); return err })
		}, nil
	}
	return attempt{
		what: what,
		open: func(ctx context.Context) (func() error, error) {
			return open(ctx, kept)
		},
		refused: func(ctx context.Context) error {
			// By the connection that is open already, and by a new one.
			if _, err := clusterv1.NewNodeServiceClient(kept).Heartbeat(own.asNode(ctx), &clusterv1.HeartbeatRequest{}); !removedError(err) {
				return nil
			}
			conn := curatorAt(t, address, "", certificate)
			defer func() { _ = conn.Close() }()
			again, cancel := context.WithCancel(ctx)
			defer cancel()
			if _, err := open(again, conn); removedError(err) {
				return err
			}
			return nil
		},
	}
}

// enrolling is the calls by which a machine comes in or has its volume opened, with the node's own keys.
func (own *thief) enrolling(t *testing.T, what, address string) attempt {
	kept := curatorAt(t, address, "", selfSigned(t, own.nodeKey))
	locked := curatorAt(t, address, "", selfSigned(t, own.joinKey))
	t.Cleanup(func() { _, _ = kept.Close(), locked.Close() })
	return attempt{
		what: what,
		open: func(ctx context.Context) (func() error, error) {
			stream, err := clusterv1.NewEnrolmentServiceClient(kept).Await(ctx, &clusterv1.AwaitRequest{})
			if err != nil {
				return nil, err
			}
			if _, err := stream.Recv(); err != nil {
				return nil, err
			}
			return func() error {
				return toldAndClosed(ctx, kept, func() error { _, err := stream.Recv(); return err })
			}, nil
		},
		refused: func(ctx context.Context) error {
			api, volume := clusterv1.NewEnrolmentServiceClient(kept), clusterv1.NewEnrolmentServiceClient(locked)
			_, register := api.Register(ctx, &clusterv1.RegisterRequest{})
			_, commit := api.Commit(ctx, &clusterv1.CommitRequest{Incarnation: own.incarnation})
			_, join := volume.Join(ctx, &clusterv1.JoinRequest{Incarnation: own.incarnation})
			for _, err := range []error{register, commit, join} {
				if !removedError(err) {
					return nil
				}
			}
			return commit
		},
	}
}

// asking is the call of another node's own API that a node may make.
func (own *thief) asking(t *testing.T, what, address string) attempt {
	kept := curatorAt(t, address, "", selfSigned(t, own.nodeKey))
	t.Cleanup(func() { _ = kept.Close() })
	ask := func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := nodev1.NewNodeServiceClient(conn).ListCurators(ctx, &nodev1.ListCuratorsRequest{})
		return err
	}
	return attempt{
		what: what,
		open: func(ctx context.Context) (func() error, error) {
			return func() error { return nil }, ask(ctx, kept) // nothing stays open but the connection
		},
		refused: func(ctx context.Context) error {
			// By the connection that is open already, and by a new one.
			conn := curatorAt(t, address, "", selfSigned(t, own.nodeKey))
			defer func() { _ = conn.Close() }()
			for _, by := range []*grpc.ClientConn{kept, conn} {
				// A handshake that is refused is Unavailable to the client.
				if code := status.Code(ask(ctx, by)); code != codes.Unauthenticated && code != codes.Unavailable {
					return nil
				}
			}
			return errors.New("neither the open connection nor another one has an answer")
		},
	}
}

// toldAndClosed waits until a stream has ended, and then until the connection that it was on is closed, which takes another moment. It returns how the stream ended.
func toldAndClosed(ctx context.Context, conn *grpc.ClientConn, receive func() error) error {
	var ended error
	for ended == nil {
		ended = receive()
	}
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		return fmt.Errorf("the connection is open still, on which was said: %w", ended)
	}
	return ended
}

// removedError says whether a call was refused by the tombstone.
func removedError(err error) bool {
	if status.Code(err) != codes.PermissionDenied {
		return false
	}
	return slices.ContainsFunc(status.Convert(err).Details(), func(detail any) bool {
		_, ok := detail.(*clusterv1.NodeRemoved)
		return ok
	})
}

// answeredProtocol is what two instances speak that were written with the SDK (decision 0035): the listener says by one byte whether it lets the other in.
const answeredProtocol = "reeve.role.v1"

// connecting is a connection by mutual TLS.
func connecting(what, address string, certificate tls.Certificate, protocol string) attempt {
	open := func(ctx context.Context) (net.Conn, error) {
		dialer := &tls.Dialer{Config: careless(certificate, protocol)}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		// That the certificate is refused the client of TLS 1.3 hears after the handshake.
		if protocol == answeredProtocol {
			answer := make([]byte, 1)
			if _, err = io.ReadFull(conn, answer); err == nil && answer[0] != 1 {
				err = fmt.Errorf("it answers %d", answer[0])
			}
		} else {
			err = heard(conn)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
	return attempt{
		what: what,
		open: func(ctx context.Context) (func() error, error) {
			conn, err := open(ctx)
			if err != nil {
				return nil, err
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			return func() error {
				defer stop()
				defer func() { _ = conn.Close() }()
				_, err := conn.Read(make([]byte, 1))
				return err
			}, nil
		},
		refused: func(ctx context.Context) error {
			conn, err := open(ctx)
			if err != nil {
				return err
			}
			_ = conn.Close()
			return nil
		},
	}
}

// heard asks something of an HTTP server on a connection that stays open, and says whether it answers.
func heard(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: member\r\n\r\n"); err != nil {
		return err
	}
	const begin = "HTTP/1.1 "
	answer := make([]byte, 4<<10)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(answer[:n]), begin) {
		return fmt.Errorf("it answers %q", answer[:n])
	}
	return nil
}
