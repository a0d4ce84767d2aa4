package peercred

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// Peer is the process at the other end of a Unix socket when it connected or began to listen.
type Peer struct {
	PID int
	UID uint32
	GID uint32
}

// ErrNotUnix says that a connection is not a Unix socket, so the kernel does not know its peer.
var ErrNotUnix = errors.New("peercred: not a Unix socket")

// Of returns the peer of a connection.
func Of(conn net.Conn) (Peer, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("%w: %T", ErrNotUnix, conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peercred: %w", err)
	}
	var ucred *unix.Ucred
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		ucred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("peercred: %w", err)
	}
	if sockErr != nil {
		return Peer{}, fmt.Errorf("peercred: SO_PEERCRED: %w", sockErr)
	}
	return Peer{PID: int(ucred.Pid), UID: ucred.Uid, GID: ucred.Gid}, nil
}

// ErrEnded says that the peer's process has ended.
var ErrEnded = errors.New("peercred: the process that connected has ended")

// CheckAlive fails with ErrEnded if the process that made a connection has ended. Process IDs are reused, so what was read about a PID counts only if
// the process still lives afterwards. Kernels before 6.5 (SO_PEERPIDFD) cannot tell; then the result is nil.
func CheckAlive(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("peercred: %w", err)
	}
	pidfd, sockErr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) {
		pidfd, sockErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return fmt.Errorf("peercred: %w", err)
	}
	switch {
	case errors.Is(sockErr, unix.ENOPROTOOPT):
		return nil
	case errors.Is(sockErr, unix.ESRCH), errors.Is(sockErr, unix.EINVAL):
		// There is no pidfd for a process that has been reaped.
		return fmt.Errorf("%w: %w", ErrEnded, sockErr)
	case sockErr != nil:
		return fmt.Errorf("peercred: SO_PEERPIDFD: %w", sockErr)
	}
	defer func() { _ = unix.Close(pidfd) }()
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return nil
}

// Info is the AuthInfo of connections with Credentials.
type Info struct {
	credentials.CommonAuthInfo
	Peer Peer
}

// AuthType implements credentials.AuthInfo.
func (Info) AuthType() string { return "peercred" }

// Credentials are gRPC transport credentials for a client or a server. They send nothing, and admit a peer only if check returns nil. A nil check
// admits everybody. A refused client sees a closed connection.
func Credentials(check func(Peer) error) credentials.TransportCredentials {
	return &transport{check: check}
}

type transport struct {
	check func(Peer) error
}

func (t *transport) handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peer, err := Of(conn)
	if err != nil {
		return nil, nil, err
	}
	if t.check != nil {
		if err := t.check(peer); err != nil {
			return nil, nil, err
		}
	}
	return conn, Info{
		// The kernel carries the data: nobody else can read or change it.
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		Peer:           peer,
	}, nil
}

func (t *transport) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return t.handshake(conn)
}

func (t *transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return t.handshake(conn)
}

func (t *transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

func (t *transport) Clone() credentials.TransportCredentials { return &transport{check: t.check} }

func (t *transport) OverrideServerName(string) error { return nil }
