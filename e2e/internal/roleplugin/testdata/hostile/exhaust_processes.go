package main

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func takeProcesses(a *attempt) {
	var pids []int
	var err error
	for len(pids) < mostProcesses {
		var pid int
		if pid, err = forkSleeper(); err != nil {
			break
		}
		pids = append(pids, pid)
	}
	a.result.Values["taken"] = strconv.Itoa(len(pids))
	a.try(fmt.Sprintf("have %d processes (refused after %d)", mostProcesses, len(pids)), err)
	time.Sleep(500 * time.Millisecond) // in which the others are to be able to work
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// takeProcessor keeps more processors busy than there are, for two seconds.
func takeProcessor(a *attempt) {
	var pids []int
	for range 32 {
		pid, err := forkBusy()
		if err != nil {
			break
		}
		pids = append(pids, pid)
	}
	time.Sleep(2 * time.Second)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
	a.note("keep processors busy", fmt.Sprintf("%d processes", len(pids)))
}

// forkBusy makes a child that does nothing without a pause.
//
//go:norace
//go:nosplit
func forkBusy() (int, error) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
		}
	}
	return int(pid), nil
}
