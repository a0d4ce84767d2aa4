package main

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childVariable says that the executable is a child of a role, and which.
const childVariable = "HOSTILE_CHILD"

// lifetime is how long a child lives that nobody ends.
const lifetime = 40 * time.Second

// child is what a role starts of itself.
func child(mode string) {
	switch mode {
	case "exit":
	case "memory":
		executeMemory()
	case "escape":
		escape()
	case "threads":
		threads()
	case "linger":
		linger()
	case "run":
		runAway()
	case "namespace":
		// It runs in a namespace of its own: that is all that was asked.
	}
}

// linger stays, under a name that tells nothing, with nothing open, and deaf to what can be ignored.
func linger() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	_, _ = unix.Setsid()
	_ = os.Chdir("/")
	name := append([]byte("kworker/0:1"), 0)
	_ = system(unix.SYS_PRCTL, unix.PR_SET_NAME, pointer(&name[0]))
	for fd := range 64 {
		if target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && !strings.HasPrefix(target, "anon_inode") {
			_ = unix.Close(fd)
		}
	}
	time.Sleep(lifetime)
}

// runAway starts itself again and again and ends each time, so that its process ID is never the same for long. Only the test, which cannot catch it either,
// ends it, by a file.
func runAway() {
	began, _ := strconv.ParseInt(os.Getenv("HOSTILE_BEGAN"), 10, 64)
	if _, err := os.Stat(os.Getenv("HOSTILE_ENOUGH")); err == nil || time.Since(time.Unix(began, 0)) > lifetime {
		return
	}
	_, _ = syscall.ForkExec("/proc/self/exe", []string{"run"}, &syscall.ProcAttr{
		Env: []string{childVariable + "=run", "HOSTILE_BEGAN=" + os.Getenv("HOSTILE_BEGAN"), "HOSTILE_ENOUGH=" + os.Getenv("HOSTILE_ENOUGH")}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}
