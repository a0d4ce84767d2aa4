package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	state byte
	// PGRP is its process group.
	PGRP int
	// Start is when it started (field 22). PIDs are used again, a PID with its start is not.
	Start uint64
}

// Dead reports whether the process has ended and is not reaped yet.
func (s Stat) Dead() bool { return s.state == 'Z' || s.state == 'X' }

// ReadStat reads the Stat of a process.
func ReadStat(pid int) (Stat, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(content)
}

// parseStat reads the fields after the name of the program, which stands in parentheses and may itself hold anything.
func parseStat(content []byte) (Stat, error) {
	_, rest, ok := bytes.Cut(content[bytes.LastIndexByte(content, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 || len(fields[0]) != 1 {
		return Stat{}, errors.New("unexpected format of /proc/PID/stat")
	}
	pgrp, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return Stat{}, fmt.Errorf("process group in /proc/PID/stat: %w", err)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("start time in /proc/PID/stat: %w", err)
	}
	return Stat{state: fields[0][0], PGRP: pgrp, Start: start}, nil
}

// HasUID reports whether a process has a matching user ID, be it the real, effective, saved or file system one.
func HasUID(pid int, match func(uint32) bool) bool {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(content)) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		for _, field := range strings.Fields(rest) {
			if uid, err := strconv.ParseUint(field, 10, 32); err == nil && match(uint32(uid)) {
				return true
			}
		}
	}
	return false
}

// Variable returns an environment variable of a process, as it was when the process was executed. It is empty if the process has none, or if the core may
// not read it.
func Variable(pid int, name string) string {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for variable := range bytes.SplitSeq(content, []byte{0}) {
		if value, ok := bytes.CutPrefix(variable, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// BootID tells one boot of the machine from another: PIDs and start times mean nothing across boots.
func BootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(content)), nil
}

// pids lists the processes of the machine, without the core itself.
func pids() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 1 && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found, nil
}

// Handle is a pidfd. It means the same process when the process is gone and its PID is used again.
type Handle struct {
	PID  int
	file *os.File
}

// NewHandle makes a Handle of a nonblocking pidfd, which it then owns.
func NewHandle(pid int, pidfd *os.File) *Handle { return &Handle{PID: pid, file: pidfd} }

// Open opens a Handle of a process. The error is ESRCH or EINVAL if there is no such process.
func Open(pid int) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	return NewHandle(pid, os.NewFile(uintptr(fd), "pidfd")), nil
}

// Close closes the handle.
func (h *Handle) Close() { _ = h.file.Close() }

// CloseAll closes handles.
func CloseAll(handles []*Handle) {
	for _, h := range handles {
		h.Close()
	}
}

// Signal signals the process. It does nothing if the process has ended.
func (h *Handle) Signal(signal syscall.Signal) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) {
		sent = unix.PidfdSendSignal(int(fd), signal, nil, 0)
	}); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// Wait returns nil when the process has ended, be it reaped or not. It costs no thread: the runtime's poller waits.
func (h *Handle) Wait(ctx context.Context) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := h.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("pidfd of process %d: %w", h.PID, err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = h.file.SetReadDeadline(time.Unix(1, 0))
	})
	var polled error
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		ended, polled = readable(int(fd))
		return ended || polled != nil
	})
	if !stop() {
		<-woken // so that it cannot disturb a later wait
	}
	switch {
	case ended:
		return nil
	case polled != nil:
		return fmt.Errorf("pidfd of process %d: %w", h.PID, polled)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func readable(fd int) (bool, error) {
	n, err := eintr.Retry(func() (int, error) { return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	return n > 0, err
}

// Find returns handles of the live processes of the machine that match, but for the core itself. It matches a process again once it holds it, so a handle is
// never that of another process. The caller closes the handles, also those that come with an error.
func Find(match func(pid int) bool) ([]*Handle, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	var found []*Handle
	for _, pid := range all {
		if !match(pid) {
			continue
		}
		h, err := Open(pid)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // gone, or a thread and not a process
			continue
		}
		if err != nil {
			return found, err
		}
		if s, err := ReadStat(pid); err != nil || s.Dead() || !match(pid) {
			h.Close()
			if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue
			}
			return found, err
		}
		found = append(found, h)
	}
	return found, nil
}
