// role does what its environment tells it, and says how that went.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// The goroutine of main keeps the first thread.
func init() { runtime.LockOSThread() }

func main() {
	switch os.Getenv("WHAT") {
	case "writes":
		err := os.WriteFile(os.Getenv("INSIDE")+"/file", nil, 0o600)
		_, outside := os.ReadDir(os.Getenv("OUTSIDE"))
		fmt.Printf("inside: %v\noutside: %v\n", err == nil, outside == nil)
		os.Exit(7)
	case "hides":
		leave(exec.Command("/proc/self/exe"), "stays")
	case "hides without a command line":
		leave(&exec.Cmd{Path: "/proc/self/exe", Args: []string{""}}, "stays")
	case "hides without a first thread":
		leave(exec.Command("/proc/self/exe"), "stays without a first thread")
	case "stays":
		fmt.Println("here")
		time.Sleep(10 * time.Minute)
	case "stays without a first thread":
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends only the calling thread
	}
}

// leave starts a process of its own session, and does not wait for it.
func leave(child *exec.Cmd, what string) {
	child.Env = []string{"WHAT=" + what}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
