package dev

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process, held by a pidfd: another one with the same ID is never taken for it.
type process struct {
	pid  int
	file *os.File
	// silent says that the node does not answer: its lock led to it.
	silent bool
}

// openProcess holds a process. unix.ESRCH says that there is none.
func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &process{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (p *process) close() { _ = p.file.Close() }

// wait returns nil when the process has ended, zombie or not, and otherwise the context's error.
func (p *process) wait(ctx context.Context) error {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	})
	err = raw.Read(func(fd uintptr) bool { return ended(int(fd)) })
	if !stop() {
		<-woken
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (p *process) ended() bool {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return true
	}
	over := false
	if err := raw.Control(func(fd uintptr) { over = ended(int(fd)) }); err != nil {
		return true
	}
	return over
}

// ended asks a pidfd, which becomes readable when its process ends.
func ended(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}

func (p *process) signal(signal unix.Signal) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	if err := raw.Control(func(fd uintptr) { sendErr = unix.PidfdSendSignal(int(fd), signal, nil, 0) }); err != nil {
		return err
	}
	return sendErr
}
