package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cloneThread is clone for a thread that only sleeps, in threads_amd64.s. It returns the thread's ID or a negated error number.
func cloneThread(flags uintptr) int

// takeThreads has a child make threads until it is refused: the child ends with all of them at once. Those of Go's own would not do, since Go ends a process
// that gets no more.
func takeThreads(a *attempt) {
	command := exec.Command("/proc/self/exe")
	command.Env = []string{childVariable + "=threads"}
	output, err := command.Output()
	made, failure, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	a.result.Values["taken"] = made
	switch {
	case err != nil:
		a.note("start a child that makes threads", say(err))
	case failure == "":
		a.try(fmt.Sprintf("have %d threads", mostProcesses), nil)
	default:
		number, _ := strconv.Atoi(failure)
		a.try(fmt.Sprintf("have %d threads (refused after %s)", mostProcesses, made), syscall.Errno(number))
	}
}

// threads makes as many threads as it gets, holds them for a while, and says how many they were and with what error it ended.
func threads() {
	const flags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	// A new thread has the signals blocked that its maker has: none of Go's handlers ever runs on one that Go does not know.
	all, before := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	runtime.LockOSThread()
	made, failure := 0, 0
	err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &before)
	for err == nil && failure == 0 && made < mostProcesses {
		if got := cloneThread(flags); got < 0 {
			failure = -got
		} else {
			made++
		}
	}
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	fmt.Print(made)
	if failure != 0 {
		fmt.Print(" ", failure)
	}
	time.Sleep(time.Second) // in which the others are to be able to work
	os.Exit(0)
}
