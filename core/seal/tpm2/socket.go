package tpm2

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// socketLine is the Unix socket of a software TPM. One connection serves a whole call, because such a TPM takes one at a time.
type socketLine struct{ conn net.Conn }

func dialSocket(ctx context.Context, path string) (line, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		// The caller adds the path.
		var operation *net.OpError
		if errors.As(err, &operation) {
			err = operation.Err
		}
		return nil, &lineError{"cannot connect to it", err}
	}
	return &socketLine{conn}, nil
}

func (l *socketLine) exchange(ctx context.Context, command []byte) ([]byte, error) {
	// The end of the context interrupts reads and writes.
	defer context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := l.conn.Write(command); err != nil {
		return nil, bare(err)
	}
	answer := make([]byte, maxAnswer)
	if _, err := io.ReadFull(l.conn, answer[:headerSize]); err != nil {
		return nil, bare(err)
	}
	size, err := answerSize(answer)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(l.conn, answer[headerSize:size]); err != nil {
		return nil, bare(err)
	}
	return answer[:size], nil
}

func (l *socketLine) close(released func()) {
	_ = l.conn.Close()
	released()
}

// bare strips the addresses from an error, because the caller adds them.
func bare(err error) error {
	var operation *net.OpError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection instead of an answer")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it closed the connection in the middle of an answer")
	case errors.As(err, &operation):
		return operation.Err
	}
	return err
}
