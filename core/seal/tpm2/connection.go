package tpm2

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2"
)

const (
	// headerSize is that of an answer: tag, size, code.
	headerSize = 10
	// maxAnswer bounds an answer. The kernel's devices have the same bound.
	maxAnswer = 4096
	// firstPause and maxPause are between two tries of a command that a busy TPM put off.
	firstPause, maxPause = 5 * time.Millisecond, 500 * time.Millisecond
	// flushing is how long the TPM is tidied after the caller has given up.
	flushing = time.Second
)

// line carries commands to a TPM, and its answers back. After an error it can only be closed.
type line interface {
	// exchange sends a command and returns its answer, which is as long as it says itself.
	exchange(ctx context.Context, command []byte) ([]byte, error)
	// close gives the descriptors back, and calls released when that is done.
	close(released func())
}

// connection is an open TPM. It is used by one goroutine.
type connection struct {
	sealer *Sealer
	ctx    context.Context
	line   line
	// broken is the error after which no answer can be told from the one before.
	broken error
}

// open waits for its turn and opens the TPM.
func (s *Sealer) open(ctx context.Context) (*connection, error) {
	waiting, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-waiting.Done():
		return nil, &lineError{fmt.Sprintf("a command before this one has had no answer yet, for %s", s.timeout), nil}
	}
	release := func() { <-s.turn }
	l, err := s.dial(waiting)
	if err != nil {
		release()
		return nil, err
	}
	return &connection{sealer: s, ctx: ctx, line: l}, nil
}

// dial opens whatever is at the path.
func (s *Sealer) dial(ctx context.Context) (line, error) {
	info, err := os.Stat(s.device)
	if err != nil {
		// The path is in the error already.
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, &lineError{"it cannot be looked at", err}
	}
	switch {
	case info.Mode()&os.ModeSocket != 0:
		return dialSocket(ctx, s.device)
	case info.Mode()&os.ModeCharDevice != 0:
		return openDevice(ctx, s.device)
	}
	return nil, &lineError{fmt.Sprintf("it is neither a character device nor a Unix socket (%s)", info.Mode()), nil}
}

func (c *connection) close() {
	c.line.close(func() { <-c.sealer.turn })
}

// Send implements transport.TPM: one command, bounded in time, tried again while the TPM is busy.
func (c *connection) Send(command []byte) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	if err := c.ctx.Err(); err != nil {
		return nil, &lineError{"the call was given up", err}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.sealer.timeout)
	defer cancel()
	var isBusy error // the answer before
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		answer, err := c.line.exchange(ctx, command)
		if err != nil {
			var strange *strangeError
			if (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)) && !errors.As(err, &strange) {
				err = fmt.Errorf("no answer within %s", c.sealer.timeout)
				if isBusy != nil {
					err = fmt.Errorf("%w but that it is busy: %w", err, isBusy)
				}
			}
			if !errors.As(err, &strange) {
				err = &lineError{"commands and answers do not pass", err}
			}
			c.broken = err
			return nil, err
		}
		code := tpm2.TPMRC(binary.BigEndian.Uint32(answer[6:]))
		if !busy(code) {
			return answer, nil
		}
		isBusy = code
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, &lineError{fmt.Sprintf("busy for %s", c.sealer.timeout), code}
		}
	}
}

// busy reports whether the TPM has done nothing yet and takes the same command later.
func busy(code tpm2.TPMRC) bool {
	switch code {
	case tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCCanceled, tpm2.TPMRCNVRate, tpm2.TPMRCNVUnavailable:
		return true
	}
	return false
}

// answerSize reads the head of an answer.
func answerSize(header []byte) (int, error) {
	tag, size := tpm2.TPMST(binary.BigEndian.Uint16(header)), binary.BigEndian.Uint32(header[2:])
	if tag != tpm2.TPMSTNoSessions && tag != tpm2.TPMSTSessions {
		return 0, &strangeError{fmt.Sprintf("an answer with the tag %#x, which is none of a TPM 2.0", uint16(tag))}
	}
	if size < headerSize || size > maxAnswer {
		return 0, &strangeError{fmt.Sprintf("an answer that says of itself that it has %d bytes", size)}
	}
	return int(size), nil
}

// flush removes an object or a session from the TPM, even if the caller has given up meanwhile: what stays would be missing to others.
func (c *connection) flush(handle tpm2.TPMHandle) {
	if c.broken != nil {
		return
	}
	if given := c.ctx; given.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(given), flushing)
		defer cancel()
		c.ctx = ctx
		defer func() { c.ctx = given }()
	}
	if _, err := (tpm2.FlushContext{FlushHandle: handle}).Execute(c); err != nil {
		c.sealer.log.Warn("the TPM keeps an object or a session that is of no more use", "device", c.sealer.device, "handle", fmt.Sprintf("%#x", uint32(handle)), "error", err)
	}
}

// sweep removes all objects and sessions that are loaded, and returns how many those were. Behind the kernel's resource manager these are this connection's
// own; elsewhere a TPM has one user at a time, and what is loaded was left by one that is gone.
func (c *connection) sweep() int {
	removed := 0
	for _, kind := range []tpm2.TPMHT{tpm2.TPMHTTransient, tpm2.TPMHTHMACSession} {
		answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(kind) << 24, PropertyCount: 64}.Execute(c)
		if err != nil {
			return removed
		}
		handles, err := answer.CapabilityData.Data.Handles()
		if err != nil {
			return removed
		}
		for _, handle := range handles.Handle {
			c.flush(handle)
			removed++
		}
	}
	return removed
}
