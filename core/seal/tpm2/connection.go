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
	// headerSize is the size of an answer's tag, size and code.
	headerSize = 10
	// maxAnswer is the largest answer in bytes, as in the kernel's driver.
	maxAnswer = 4096
	// firstPause and maxPause bound the pause before a command is repeated on a busy TPM.
	firstPause, maxPause = 5 * time.Millisecond, 500 * time.Millisecond
	// flushing is how long the TPM is cleaned up after the caller has given up.
	flushing = time.Second
)

// line carries commands to a TPM and answers back. After an error it can only be closed.
type line interface {
	// exchange sends a command and returns the whole answer.
	exchange(ctx context.Context, command []byte) ([]byte, error)
	// close closes the descriptors and calls released afterwards.
	close(released func())
}

// connection is an open TPM. One goroutine uses it.
type connection struct {
	sealer *Sealer
	ctx    context.Context
	line   line
	// broken is an error after which answers no longer match commands.
	broken error
}

// open waits for its turn and opens the TPM.
func (s *Sealer) open(ctx context.Context) (*connection, error) {
	waiting, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-waiting.Done():
		return nil, &lineError{fmt.Sprintf("an earlier command has had no answer for %s", s.timeout), nil}
	}
	release := func() { <-s.turn }
	l, err := s.dial(waiting)
	if err != nil {
		release()
		return nil, err
	}
	return &connection{sealer: s, ctx: ctx, line: l}, nil
}

// dial opens the device or socket at the path.
func (s *Sealer) dial(ctx context.Context) (line, error) {
	info, err := os.Stat(s.device)
	if err != nil {
		// The caller adds the path.
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, &lineError{"cannot stat it", err}
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

// Send implements transport.TPM: it sends one command with a timeout, and repeats it while the TPM is busy.
func (c *connection) Send(command []byte) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	if err := c.ctx.Err(); err != nil {
		return nil, &lineError{"the call was cancelled", err}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.sealer.timeout)
	defer cancel()
	var isBusy error // the last answer
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		answer, err := c.line.exchange(ctx, command)
		if err != nil {
			var strange *strangeError
			if (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)) && !errors.As(err, &strange) {
				err = fmt.Errorf("no answer within %s", c.sealer.timeout)
				if isBusy != nil {
					err = fmt.Errorf("%w, except that it is busy: %w", err, isBusy)
				}
			}
			if !errors.As(err, &strange) {
				err = &lineError{"the exchange failed", err}
			}
			c.broken = err
			return nil, err
		}
		code := tpm2.TPMRC(binary.BigEndian.Uint32(answer[6:]))
		if !busy(code) {
			return answer, nil
		}
		isBusy = code
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, &lineError{fmt.Sprintf("busy for %s", c.sealer.timeout), code}
		}
	}
}

// busy reports whether the TPM did nothing and will take the command later.
func busy(code tpm2.TPMRC) bool {
	switch code {
	case tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting, tpm2.TPMRCCanceled, tpm2.TPMRCNVRate, tpm2.TPMRCNVUnavailable:
		return true
	}
	return false
}

// answerSize reads the size in an answer's header.
func answerSize(header []byte) (int, error) {
	tag, size := tpm2.TPMST(binary.BigEndian.Uint16(header)), binary.BigEndian.Uint32(header[2:])
	if tag != tpm2.TPMSTNoSessions && tag != tpm2.TPMSTSessions {
		return 0, &strangeError{fmt.Sprintf("an answer with the tag %#x, which TPM 2.0 does not have", uint16(tag))}
	}
	if size < headerSize || size > maxAnswer {
		return 0, &strangeError{fmt.Sprintf("an answer that claims %d bytes", size)}
	}
	return int(size), nil
}

// flush removes an object or a session from the TPM, even if the caller has given up: it would take space from others.
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
		c.sealer.log.Warn("cannot remove an unused object or session from the TPM", "device", c.sealer.device, "handle", fmt.Sprintf("%#x", uint32(handle)), "error", err)
	}
}

// sweep removes all loaded objects and sessions and returns their number. Behind the kernel's resource manager they are this connection's own.
// Elsewhere a TPM has one user at a time, and an earlier one left them.
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
