package peercred

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// Peer is a process at the other end of a Unix socket, as it was when it connected or began to listen.
type Peer struct {
	PID int
	UID uint32
	GID uint32
}

// ErrNotUnix says that a connection is not one of a Unix socket, so that the kernel does not know its peer.
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

// Info is the AuthInfo of a connection that was made with Credentials.
type Info struct {
	credentials.CommonAuthInfo
	Peer Peer
}

// AuthType implements credentials.AuthInfo.
func (Info) AuthType() string { return "peercred" }

// Credentials are gRPC transport credentials, for a client or a server, that send nothing and admit a peer only if check returns nil for it. A
// nil check admits everybody. A refused client sees that the connection was closed.
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
		// The kernel is the channel: what arrives was sent by the peer, unread and unchanged.
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
