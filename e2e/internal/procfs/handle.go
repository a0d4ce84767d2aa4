package procfs

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Handle holds a process by a pidfd.
type Handle struct {
	Process
	file *os.File
}

// Hold holds a process. It fails if the process is gone, also if another has its PID now.
func Hold(p Process) (*Handle, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	h := &Handle{Process: p, file: os.NewFile(uintptr(fd), "pidfd")}
	if now, err := Read(p.PID); err != nil || now.Start != p.Start {
		_ = h.file.Close()
		return nil, fmt.Errorf("%s has ended: %w", p, unix.ESRCH)
	}
	return h, nil
}

// Close lets go of the process.
func (h *Handle) Close() error { return h.file.Close() }

// Signal sends a signal.
func (h *Handle) Signal(signal unix.Signal) error {
	if err := unix.PidfdSendSignal(int(h.file.Fd()), signal, nil, 0); err != nil {
		return fmt.Errorf("%s to %s: %w", unix.SignalName(signal), h.Process, err)
	}
	return nil
}

// Ended says that the process does not run any more, whether it was waited for or not.
func (h *Handle) Ended() bool {
	poll := []unix.PollFd{{Fd: int32(h.file.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}

// Wait returns when the process has ended, or fails with the context's error.
func (h *Handle) Wait(ctx context.Context) error {
	for {
		wait := 100 * time.Millisecond
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, max(time.Until(deadline), 0))
		}
		poll := []unix.PollFd{{Fd: int32(h.file.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(wait.Milliseconds())); err == nil && n == 1 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s still runs: %w", h.Process, ctx.Err())
		}
	}
}

// Listener returns the process that listens on a Unix socket, as the kernel names it.
func Listener(socket string) (Process, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return Process{}, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Process{}, err
	}
	if peerErr != nil {
		return Process{}, peerErr
	}
	return Read(int(peer.Pid))
}
