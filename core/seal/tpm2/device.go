package tpm2

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// lingering is how long to wait for a cancelled command. Waiting for an answer ends at once; only a write in the kernel does not.
const lingering = 100 * time.Millisecond

// errHungUp says that the device is gone.
var errHungUp = errors.New("the device was removed")

// deviceLine is a TPM's character device. It stays out of the runtime's poller: the kernel answers a poll of a working TPM only when the work is
// done, which would block every connection of the process. The kernel runs a command inside write, which cannot be interrupted.
type deviceLine struct {
	descriptor int
	// wake ends the wait for an answer.
	wake int
	// stuck is set if a command was cancelled while the kernel ran it, and is closed when write returns.
	stuck <-chan struct{}
}

func openDevice(ctx context.Context, path string) (line, error) {
	descriptor, err := openFree(ctx, path)
	if err != nil {
		return nil, &lineError{"cannot open it", err}
	}
	// O_NONBLOCK was for open only; reads and writes block.
	if err := unix.SetNonblock(descriptor, false); err != nil {
		_ = unix.Close(descriptor)
		return nil, &lineError{"cannot use it", err}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(descriptor)
		return nil, &ownError{err}
	}
	return &deviceLine{descriptor: descriptor, wake: wake}, nil
}

// openFree opens a device, and waits while another program holds one that only takes one user.
func openFree(ctx context.Context, path string) (int, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		descriptor, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
			return descriptor, nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINTR):
			return -1, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return -1, err
		}
	}
}

func (l *deviceLine) exchange(ctx context.Context, command []byte) ([]byte, error) {
	var answer []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = l.blocking(command)
	}()
	select {
	case <-done:
		return answer, err
	case <-ctx.Done():
	}
	if _, err := unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		l.stuck = done
		return nil, err
	}
	select {
	case <-done:
		return answer, err
	case <-time.After(lingering):
		l.stuck = done
		return nil, ctx.Err()
	}
}

// blocking writes a command and reads its answer, until wake is written.
func (l *deviceLine) blocking(command []byte) ([]byte, error) {
	written, err := eintr.Retry(func() (int, error) { return unix.Write(l.descriptor, command) })
	if err != nil {
		return nil, err
	}
	if written != len(command) {
		return nil, errors.New("it took only a part of the command")
	}
	answer, size, have := make([]byte, maxAnswer), maxAnswer, 0
	for have < size {
		if err := l.wait(); err != nil {
			return nil, err
		}
		n, err := eintr.Retry(func() (int, error) { return unix.Read(l.descriptor, answer[have:]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errHungUp
		}
		if have += n; have < headerSize {
			continue
		}
		if size, err = answerSize(answer); err != nil {
			return nil, err
		}
	}
	if have > size {
		return nil, &strangeError{"an answer that is longer than it claims"}
	}
	return answer[:size], nil
}

// wait returns when there is something to read.
func (l *deviceLine) wait() error {
	both := []unix.PollFd{{Fd: int32(l.descriptor), Events: unix.POLLIN}, {Fd: int32(l.wake), Events: unix.POLLIN}}
	if _, err := eintr.Retry(func() (int, error) { return unix.Poll(both, -1) }); err != nil {
		return err
	}
	switch {
	case both[1].Revents != 0:
		return context.Canceled
	case both[0].Revents&unix.POLLIN != 0:
		return nil
	}
	return errHungUp
}

func (l *deviceLine) close(released func()) {
	shut := func() {
		_ = unix.Close(l.descriptor)
		_ = unix.Close(l.wake)
		released()
	}
	if l.stuck == nil {
		shut()
		return
	}
	// A descriptor is not closed while the kernel uses it, because its number could be reused. There is at most one of these: nobody gets the next
	// turn before it ends.
	go func() {
		<-l.stuck
		shut()
	}()
}
