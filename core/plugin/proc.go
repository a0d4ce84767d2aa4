package plugin

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

	"github.com/reeveproject/reeve/core/eintr"
)

// stat is what /proc/PID/stat says of a process.
type stat struct {
	state byte
	pgrp  int
	start uint64
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(content)
}

// parseStat reads the fields after the name of the program, which stands in parentheses and may itself hold anything.
func parseStat(content []byte) (stat, error) {
	_, rest, ok := bytes.Cut(content[bytes.LastIndexByte(content, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errors.New("unexpected format of /proc/PID/stat")
	}
	pgrp, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return stat{}, fmt.Errorf("process group in /proc/PID/stat: %w", err)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in /proc/PID/stat: %w", err)
	}
	return stat{state: fields[0][0], pgrp: pgrp, start: start}, nil
}

// hasUID reports whether a process has a matching user ID, be it the real, effective, saved or file system one.
func hasUID(pid int, match func(uint32) bool) bool {
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

// instanceOf returns the instance ID in a process's environment, as it was when the process was executed; "" if there is none, or if it is not
// the core's to read.
func instanceOf(pid int) string {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for variable := range bytes.SplitSeq(content, []byte{0}) {
		if value, ok := bytes.CutPrefix(variable, []byte(InstanceVariable+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// bootID tells one boot of the machine from another: PIDs and start times mean nothing across boots.
func bootID() (string, error) {
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

// anyProcess reports whether a live process matches.
func anyProcess(match func(pid int) bool) (bool, error) {
	all, err := pids()
	if err != nil {
		return false, err
	}
	for _, pid := range all {
		if s, err := readStat(pid); err == nil && !s.dead() && match(pid) {
			return true, nil
		}
	}
	return false, nil
}

// handle is a pidfd: it goes on meaning the same process when the process is gone and its PID is used again.
type handle struct {
	pid  int
	file *os.File
}

func openHandle(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	return &handle{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (h *handle) close() { _ = h.file.Close() }

// signal does nothing if the process has ended.
func (h *handle) signal(signal syscall.Signal) error {
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

// wait returns nil when the process has ended, be it reaped or not. It costs no thread: the runtime's poller waits.
func (h *handle) wait(ctx context.Context) error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := h.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("pidfd of process %d: %w", h.pid, err)
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
		return fmt.Errorf("pidfd of process %d: %w", h.pid, polled)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func readable(fd int) (bool, error) {
	n, err := eintr.Retry(func() (int, error) { return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	return n > 0, err
}

// find returns handles of the live processes that match. A process is matched again once it is held, so that a handle never is of
// another one. The caller closes them.
func find(match func(pid int) bool) ([]*handle, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	var found []*handle
	for _, pid := range all {
		if !match(pid) {
			continue
		}
		h, err := openHandle(pid)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // gone, or a thread and not a process
			continue
		}
		if err != nil {
			return found, err
		}
		if s, err := readStat(pid); err != nil || s.dead() || !match(pid) {
			h.close()
			if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue
			}
			return found, err
		}
		found = append(found, h)
	}
	return found, nil
}
