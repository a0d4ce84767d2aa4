package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/remit"
)

const notPermitted = "operation not permitted"

func number(call uintptr) string { return strconv.FormatUint(uint64(call), 10) }

// TestCalls: what a filter refuses fails with EPERM, and fails otherwise without the filter, so that it is the filter that refuses.
func TestCalls(t *testing.T) {
	w, host := newWorld(t), probed(t)
	// Calls with arguments that do nothing, and that the kernel does not refuse with EPERM by itself.
	calls := map[string]string{}
	for name, text := range map[string]string{
		"unshare": fmt.Sprint(unix.SYS_UNSHARE, " 0"), "setns": fmt.Sprint(unix.SYS_SETNS, " 1000 0"),
		"clone":  fmt.Sprint(unix.SYS_CLONE, " ", unix.CLONE_NEWUSER|unix.CLONE_THREAD, " 0"),
		"ptrace": fmt.Sprint(unix.SYS_PTRACE, " ", unix.PTRACE_PEEKDATA, " 1"), "vm": fmt.Sprint(unix.SYS_PROCESS_VM_READV, " 1 0 0 0 0 1"),
		"getfd": fmt.Sprint(unix.SYS_PIDFD_GETFD, " 1000 0 0"), "keyctl": fmt.Sprint(unix.SYS_KEYCTL, " 9999"),
		"uring": fmt.Sprint(unix.SYS_IO_URING_ENTER, " 1000 0 0 0"), "handle": fmt.Sprint(unix.SYS_NAME_TO_HANDLE_AT, " 1000 0 0 0"),
		"personality": fmt.Sprint(unix.SYS_PERSONALITY, " 0xfffffff0"), "sti": fmt.Sprint(unix.SYS_IOCTL, " 0 ", unix.TIOCSTI),
		"addkey": fmt.Sprint(unix.SYS_ADD_KEY, " 0 0 0 0"), "adjtime": fmt.Sprint(unix.SYS_ADJTIMEX, " 0"),
		"pages": fmt.Sprint(unix.SYS_MOVE_PAGES, " 0 0 0 0 0 9999"), "secret": fmt.Sprint(unix.SYS_MEMFD_SECRET, " 0xffffffff"),
	} {
		calls["call "+text] = name
	}
	var attempts []string
	for call := range calls {
		attempts = append(attempts, call)
	}
	with := attempt(t, host, w.policy, attempts...)
	without := attempt(t, host.Without(sandbox.MissingSeccomp), w.policy, attempts...)
	for call, name := range calls {
		if !strings.Contains(with[call], notPermitted) {
			t.Errorf("%s (%s): %q", name, call, with[call])
		}
		if strings.Contains(without[call], notPermitted) {
			t.Errorf("%s (%s) is refused without the filter too, which tests nothing", name, call)
		}
	}
	expect(t, host, w.policy, map[string]string{
		"call " + number(unix.SYS_CLONE3): "function not implemented", "call 480": "function not implemented", "call 2000": "function not implemented",
		fmt.Sprint("call ", unix.SYS_PERSONALITY, " 0xffffffff"): "", "interfaces ": "",
	})
}

// TestForeignNumbers: the other numbering of system calls of the same processor ends the process.
func TestForeignNumbers(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this architecture has one numbering")
	}
	w, host := newWorld(t), probed(t)
	child, _ := start(t, host, w.policy, "A=B", []string{fmt.Sprint("call ", 0x40000000|unix.SYS_GETPID)})
	defer child.Release()
	state, err := child.Process.Wait()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
		t.Errorf("%v %v, want SIGSYS", state, err)
	}
}

func socket(domain, kind, protocol int) string {
	return fmt.Sprint("socket ", domain, " ", kind, " ", protocol)
}

// TestSockets: kinds of sockets by what is granted.
func TestSockets(t *testing.T) {
	w, host := newWorld(t), probed(t)
	const raw, tcp, udp, mptcp, sctp = unix.SOCK_RAW, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.IPPROTO_MPTCP, unix.IPPROTO_SCTP
	never := map[string]string{
		socket(unix.AF_INET, raw, 1): notPermitted, socket(unix.AF_PACKET, raw, 0): notPermitted, socket(unix.AF_NETLINK, raw, unix.NETLINK_AUDIT): notPermitted,
		socket(unix.AF_VSOCK, tcp, 0): notPermitted, socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0): notPermitted, socket(unix.AF_INET, tcp, mptcp): notPermitted,
		socket(unix.AF_INET6, tcp, mptcp): notPermitted, socket(unix.AF_INET, tcp, sctp): notPermitted, socket(unix.AF_INET, unix.SOCK_SEQPACKET, sctp): notPermitted,
		socket(43, tcp, 0):                 notPermitted,
		fmt.Sprint("pair ", unix.AF_VSOCK): notPermitted, fmt.Sprint("pair ", unix.AF_TIPC): notPermitted, fmt.Sprint("pair ", unix.AF_UNIX): "",
		socket(unix.AF_UNIX, tcp, 0): "", socket(unix.AF_NETLINK, raw, unix.NETLINK_ROUTE): "",
	}
	expect(t, host, w.policy, never)
	expect(t, host, w.policy, map[string]string{socket(unix.AF_INET, tcp, 0): notPermitted, socket(unix.AF_INET6, udp, 0): notPermitted})
	w.policy.Remit.Connect = remit.Ports{Numbers: []uint16{53}}
	expect(t, host, w.policy, never)
	expect(t, host, w.policy, map[string]string{socket(unix.AF_INET, tcp, 0): "", socket(unix.AF_INET, tcp, 6): "", socket(unix.AF_INET6, udp, 0): ""})
	w.policy.GivesUp = []string{remit.GiveUpNetwork}
	expect(t, host, w.policy, map[string]string{socket(unix.AF_INET, tcp, 0): notPermitted})
	if root() {
		w.policy.GivesUp = nil
		w.policy.Remit = remit.Remit{Capabilities: []string{"net-raw"}}
		expect(t, host, w.policy, map[string]string{
			socket(unix.AF_INET, raw, 1): "", socket(unix.AF_PACKET, raw, 0): "", socket(unix.AF_INET, tcp, 0): notPermitted, "status CapEff": "",
		})
	}
}

// TestPorts: TCP ports that are granted, and no others.
func TestPorts(t *testing.T) {
	w, host := newWorld(t), probed(t)
	if len(host.Without().Missing(portsOnly(w.policy))) > 0 && strings.Contains(fmt.Sprint(host.Missing(portsOnly(w.policy))), sandbox.MissingLandlockTCP) {
		t.Skip("this kernel's Landlock knows no ports")
	}
	open, closed := port(listen(t, "tcp", "127.0.0.1:0")), port(listen(t, "tcp", "127.0.0.1:0"))
	mine := reserve(t)
	w.policy.Remit = remit.Remit{Connect: remit.Ports{Numbers: []uint16{open}}, Listen: remit.Ports{Numbers: []uint16{mine}}}
	expect(t, host, w.policy, map[string]string{
		fmt.Sprint("dial 127.0.0.1:", open): "", fmt.Sprint("dial 127.0.0.1:", closed): denied, fmt.Sprint("listen 127.0.0.1:", mine): "",
		fmt.Sprint("listen 127.0.0.1:", closed): denied, "listen 127.0.0.1:0": denied, fmt.Sprint("fast-open ", closed): notPermitted,
	})
	w.policy.Remit = remit.Remit{Connect: remit.Ports{Any: true}}
	expect(t, host, w.policy, map[string]string{fmt.Sprint("dial 127.0.0.1:", closed): "", fmt.Sprint("listen 127.0.0.1:", mine): denied})
}

// reserve has a port kept for a process that asks for it by its number, while nobody who asks for any port is given it: it is bound, and nobody listens.
func reserve(t *testing.T) uint16 {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(address.(*unix.SockaddrInet4).Port)
}

func portsOnly(p sandbox.Policy) sandbox.Policy {
	p.Remit = remit.Remit{Listen: remit.Ports{Numbers: []uint16{1}}}
	return p
}

func port(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// TestCapability: a granted one is there, usable, and alone.
func TestCapability(t *testing.T) {
	needRoot(t)
	w, host := newWorld(t), probed(t)
	w.policy.Remit = remit.Remit{Capabilities: []string{"net-bind-service"}, Listen: remit.Ports{Numbers: []uint16{987}}}
	// An address of this process alone.
	pid := os.Getpid()
	listen := fmt.Sprintf("listen 127.%d.%d.%d:987", 1+pid>>16, pid>>8&0xff, pid&0xff)
	got := attempt(t, host, w.policy, "status CapEff", "status CapBnd", "status CapAmb", listen)
	for _, name := range []string{"status CapEff", "status CapBnd", "status CapAmb"} {
		if got[name] != "0000000000000400" {
			t.Errorf("%s is %s", name, got[name])
		}
	}
	if got[listen] != "" {
		t.Error(got[listen])
	}
}

// TestOthers: roles that share a user are kept from each other, and from the core.
func TestOthers(t *testing.T) {
	w, host := newWorld(t), probed(t)
	host = host.Without(sandbox.MissingSeccomp, sandbox.MissingMounts) // so that it is Landlock that refuses
	victim := begin(t, host, w.policy)
	pid := strconv.Itoa(victim.Process.Pid)
	const attach = unix.PTRACE_SEIZE
	expect(t, host, w.policy, map[string]string{
		fmt.Sprint("call ", unix.SYS_PTRACE, " ", attach, " ", pid): notPermitted, "read /proc/" + pid + "/environ": denied, "open /proc/" + pid + "/mem": denied,
		"signal " + pid: notPermitted, "signal " + strconv.Itoa(syscall.Getpid()): notPermitted,
	})
}
