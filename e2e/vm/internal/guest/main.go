package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func main() {
	// The console is what the test shows when a machine does not come up.
	fmt.Fprintln(os.Stderr, "guest: "+run().Error())
	if os.Getpid() == 1 {
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(1)
}

// run does what the process is for, which only ends by an error.
func run() error {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "agent":
		return serve()
	case os.Getpid() != 1:
		return errors.New("this is the first process of a test's machine: it does nothing elsewhere")
	case len(os.Args) > 1 && os.Args[1] == "system":
		return system()
	default:
		return initramfs()
	}
}

// system makes the rest of the system, starts the agent, and reaps until it ends.
func system() error {
	if err := mountSystem(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("machine")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	// The programs that the test runs inherit it.
	if err := os.Setenv("PATH", "/usr/lib/reeve:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	agent := exec.Command("/sbin/init", "agent")
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	if err := agent.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("reap: %w", err)
		case pid == agent.Process.Pid:
			return fmt.Errorf("the agent has ended: %#x", uint32(status))
		}
	}
}
