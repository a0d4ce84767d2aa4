package role

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"time"
)

// answered is the application protocol (ALPN) of two instances that were both written with this package: after the handshake the listener tells by one byte
// whether the peer is let in. In TLS 1.3 a client would else not know before it reads. Clients that do not ask for it are not answered.
const answered = "reeve.role.v1"

// answer is what a listener says to a peer that has proved itself.
type answer byte

const (
	admitted    answer = 1
	otherRole   answer = 2
	notMember   answer = 3
	notAssigned answer = 4
)

// refusal is what an answer means to the peer; nil: it is let in.
func (a answer) refusal() error {
	switch a {
	case admitted:
		return nil
	case otherRole:
		return fmt.Errorf("%w: the listener does not allow this role: its author names it in AllowRoles", ErrNotAuthorised)
	case notMember:
		return fmt.Errorf("%w: the cluster's directory, as the listener's node knows it, does not have this node", ErrNotAuthorised)
	case notAssigned:
		return fmt.Errorf("%w: the cluster's directory, as the listener's node knows it, does not have this role on this node", ErrNotAuthorised)
	}
	return fmt.Errorf("%w: the listener refuses it with %d, which this version does not know", ErrNotAuthorised, a)
}

func (a answer) write(ctx context.Context, conn *peerConn) error {
	return within(ctx, conn.Conn, func() error {
		_, err := conn.Write([]byte{byte(a)})
		return err
	})
}

// readAnswer returns what the listener says; nil: the connection is let in.
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

// within runs what reads or writes on a connection, and ends it with ctx. The connection has no deadline afterwards.
func within(ctx context.Context, conn *tls.Conn, function func() error) error {
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := function()
	if !unhook() {
		return context.Cause(ctx) // the deadline was set, or is about to be
	}
	return err
}
