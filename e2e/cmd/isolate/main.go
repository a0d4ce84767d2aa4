// isolate runs a test program on a machine of its own: `go test -exec isolate` starts every package's tests by it.
//
// As root the program gets new network, mount, PID and IPC namespaces. It sees no process, port or mount of other tests, nor of nodes on this machine, and
// they see none of its own. Its network is the loopback interface and one Ethernet interface with an address, which leads nowhere. Its DNS
// servers are unreachable, and the kernel says so at once. When the program ends, the kernel ends every process that it left.
//
// An ordinary user cannot make namespaces everywhere: the program then runs as it is.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideVariable tells the process that it is the first one of the namespaces.
const insideVariable = "REEVE_ISOLATE_INSIDE"

// notRun is the exit code for a program that could not be started, as shells have it.
const notRun = 126

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: isolate PROGRAM [ARGUMENT]...")
		os.Exit(2)
	}
	outermost := os.Getenv(insideVariable) == ""
	code, err := run(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate:", err)
	}
	if code != 0 && outermost {
		printLoad()
	}
	os.Exit(code)
}

// printLoad says how busy the machine was when tests failed: testall reports it with a flaky test.
func printLoad() {
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(os.Stderr, "isolate: load average: %s", load)
	}
}

func run(arguments []string) (code int, err error) {
	if os.Getenv(insideVariable) != "" {
		if err := errors.Join(os.Unsetenv(insideVariable), setUpMounts(), setUpNetwork(), refuseNameServers()); err != nil {
			return notRun, err
		}
		return runChild(exec.Command(arguments[1], arguments[2:]...))
	}
	if os.Geteuid() != 0 {
		return runChild(exec.Command(arguments[1], arguments[2:]...))
	}
	inside := exec.Command("/proc/self/exe", arguments[1:]...)
	inside.Env = append(os.Environ(), insideVariable+"=1")
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	return runChild(inside)
}

// runChild runs a command, passes signals on to it, and returns its exit code. It reaps every process that ends meanwhile: the first process of a PID
// namespace inherits those whose parents have ended.
func runChild(command *exec.Cmd) (code int, err error) {
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	if err := command.Start(); err != nil {
		return notRun, err
	}
	go func() {
		for s := range signals {
			_ = command.Process.Signal(s)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return notRun, fmt.Errorf("wait for %s: %w", command.Path, err)
		case pid == command.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), fmt.Errorf("%s was ended by signal %s", command.Path, status.Signal())
		case pid == command.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// setUpMounts keeps mounts that are made here from the rest of the machine, and shows the processes of this PID namespace in /proc.
func setUpMounts() error {
	// Not private: what the machine unmounts must go here too, or this namespace would keep that file system busy.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// setUpNetwork starts the loopback interface, and makes eth0 with an address and a default route, as a machine has them.
func setUpNetwork() error {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "wire"}); err != nil {
		return fmt.Errorf("make eth0: %w", err)
	}
	for _, name := range []string{"lo", "wire", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		if name != "eth0" {
			continue
		}
		// From the block for documentation (RFC 5737): nobody's machine has it.
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 10), Mask: net.CIDRMask(24, 32)}}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("give eth0 the address %s: %w", address, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)}); err != nil {
			return fmt.Errorf("make the default route: %w", err)
		}
	}
	return nil
}

// refuseNameServers makes the DNS servers of the machine unreachable: a program that asks one learns at once that there is none. By the default route it would wait for seconds. No route leads to one with an
// IPv6 address.
func refuseNameServers() error {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil // resolvers ask this machine then, where none listens
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		server := net.ParseIP(fields[1]).To4()
		if server == nil || server.IsLoopback() {
			continue
		}
		route := &netlink.Route{Type: unix.RTN_UNREACHABLE, Dst: &net.IPNet{IP: server, Mask: net.CIDRMask(32, 32)}}
		if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make the DNS server %s unreachable: %w", server, err)
		}
	}
	return nil
}
