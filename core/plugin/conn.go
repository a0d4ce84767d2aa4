package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/peercred"
	"github.com/reeveproject/reeve/sdk/role"
)

// maxMessage bounds what a role may answer to the role protocol's own calls, in bytes. A manifest with large schemas is far below it.
const maxMessage = 2 << 20

// maxHeaders bounds the headers of an answer, in bytes: an error with the problems of a configuration is the longest.
const maxHeaders = 256 << 10

// connect connects to a socket in a directory that a role can change. It follows no link there: the connection alone could wake up a service of the host.
func connect(ctx context.Context, socket string) (net.Conn, error) {
	fd, err := unix.Open(socket, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link", ErrPeer, limits.Clean(socket))
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: socket, Err: err}
	}
	file := os.NewFile(uintptr(fd), socket)
	defer func() { _ = file.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: socket, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%w: %s is not a socket", ErrPeer, limits.Clean(socket))
	}
	return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// bounded is for every call of the role protocol itself.
func bounded() grpc.CallOption { return grpc.MaxCallRecvMsgSize(maxMessage) }

// dial connects to an instance's socket, and returns when it is connected. Whenever it connects, again too, the kernel's word on who listens
// must satisfy check, since the path is in a directory of the role's.
func (l *Launcher) dial(ctx context.Context, socket string, check func(peercred.Peer) error) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience.Connect)
	defer cancel()
	var refused atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := connect(ctx, socket)
			if errors.Is(err, ErrPeer) {
				refused.Store(&err)
			}
			return conn, err
		}),
		// The other side may be hostile: gRPC itself would take 16 MiB of headers with each answer.
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithNoProxy(),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(peercred.Credentials(func(peer peercred.Peer) error {
			err := check(peer)
			if err != nil {
				refused.Store(&err)
			}
			return err
		})),
		// A role that restarts its listener is found again at once; a dead one costs nothing, for the connection is closed with it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: l.patience.Connect,
		}),
		grpc.WithIdleTimeout(0), // an idle connection that closes would be dialled and checked again for nothing
		// For the services of capabilities; the role protocol's own calls are bounded by bounded.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(role.MaxMessageSize)),
	)
	if err != nil {
		return nil, err
	}
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if err := refused.Load(); err != nil {
			return nil, errors.Join(*err, conn.Close())
		}
		if !conn.WaitForStateChange(ctx, state) {
			_ = conn.Close()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, fmt.Errorf("its socket %s does not answer", limits.Clean(socket))
			}
			return nil, context.Cause(ctx)
		}
	}
	return conn, nil
}

// listenerOf returns a check that whoever listens is in the process group of p and has its user ID.
func listenerOf(p *process, uid uint32) func(peercred.Peer) error {
	return func(peer peercred.Peer) error {
		if peer.UID != uid {
			return fmt.Errorf("%w: user %d listens on it, not user %d", ErrPeer, peer.UID, uid)
		}
		// The number of a child is its own until it is reaped, which is after its connection was closed. That of an adopted process is if it runs after it
		// was looked at.
		group, err := unix.Getpgid(peer.PID)
		if err != nil {
			return fmt.Errorf("%w: process %d: %w", ErrPeer, peer.PID, err)
		}
		if group != p.PID || p.life.Err() != nil || p.child == nil && !p.Running() {
			return fmt.Errorf("%w: process %d, which listens on it, is not of the instance", ErrPeer, peer.PID)
		}
		return nil
	}
}
