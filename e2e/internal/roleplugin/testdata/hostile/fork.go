package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// fork is clone or clone3 with their arguments. The child ends at once, in raw system calls alone: it is a copy of a process of many threads, of which it
// has one.
//
//go:norace
//go:nosplit
func fork(number, first, second uintptr) (int, error) {
	pid, _, errno := syscall.RawSyscall6(number, first, second, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(pid), nil
}

// forkSleeper makes a child that sleeps, and ends with its parent's thread.
//
//go:norace
//go:nosplit
func forkSleeper() (int, error) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
		}
	}
	return int(pid), nil
}
