package role

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"time"
)

// answered is the application protocol (ALPN) between two instances that use this package: after the handshake the listener sends one byte that says
// whether the peer is admitted. In TLS 1.3 a client would otherwise learn that only when it reads. Other clients get no such byte.
const answered = "reeve.role.v1"

// answer is a listener's answer to an authenticated peer.
type answer byte

const (
	admitted    answer = 1
	otherRole   answer = 2
	notMember   answer = 3
	notAssigned answer = 4
)

// refusal returns the error for the peer; nil if it is admitted.
func (a answer) refusal() error {
	switch a {
	case admitted:
		return nil
	case otherRole:
		return fmt.Errorf("%w: the listener does not allow this role: its author must name it in AllowRoles", ErrNotAuthorised)
	case notMember:
		return fmt.Errorf("%w: this node is not in the cluster's directory as the listener's node knows it", ErrNotAuthorised)
	case notAssigned:
		return fmt.Errorf("%w: this role is not assigned to this node in the cluster's directory as the listener's node knows it", ErrNotAuthorised)
	}
	return fmt.Errorf("%w: the listener refused it with the unknown code %d", ErrNotAuthorised, a)
}

func (a answer) write(ctx context.Context, conn *peerConn) error {
	return within(ctx, conn.Conn, func() error {
		_, err := conn.Write([]byte{byte(a)})
		return err
	})
}

// readAnswer reads the listener's answer; nil: the connection is admitted.
func readAnswer(ctx context.Context, conn *tls.Conn) error {
	var said [1]byte
	if err := within(ctx, conn, func() error {
		_, err := io.ReadFull(conn, said[:])
		return err
	}); err != nil {
		return err
	}
	return answer(said[0]).refusal()
}

// within runs an I/O function that ends with ctx. The connection has no deadline afterwards.
func within(ctx context.Context, conn *tls.Conn, function func() error) error {
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := function()
	if !unhook() {
		return context.Cause(ctx) // the deadline is or will be set
	}
	return err
}
