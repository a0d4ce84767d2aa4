package sandbox

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// newest is the newest system call that the filter knows.
const newest = unix.SYS_LISTNS

// group is a set of system calls that are refused for one reason.
type group struct {
	// name is the name that docs/reference/sandbox.md explains.
	name  string
	calls []uintptr
	// reopenedBy is the capability that allows the group's calls, because the kernel then checks them; empty: none.
	reopenedBy string
}

// denied are the system calls that no role needs, whatever their arguments.
func denied() []group {
	return []group{
		{name: "mounts", calls: []uintptr{
			unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT,
			unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		}},
		{name: "namespaces", calls: []uintptr{unix.SYS_UNSHARE, unix.SYS_SETNS}},
		{name: "other-processes", calls: []uintptr{
			unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
			unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
		}},
		{name: "kernel", calls: append([]uintptr{
			unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
			unix.SYS_USERFAULTFD, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_VHANGUP,
			unix.SYS_NFSSERVCTL, unix.SYS_FANOTIFY_INIT, unix.SYS_MEMFD_SECRET,
		}, ownKernel...)},
		{name: "reboot", calls: []uintptr{unix.SYS_REBOOT}, reopenedBy: "sys-boot"},
		{name: "accounting", calls: []uintptr{unix.SYS_ACCT}, reopenedBy: "sys-pacct"},
		{name: "kernel-log", calls: []uintptr{unix.SYS_SYSLOG}, reopenedBy: "syslog"},
		{name: "clock", calls: []uintptr{unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME}, reopenedBy: "sys-time"},
		{name: "keyrings", calls: []uintptr{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL}},
		{name: "io-uring", calls: []uintptr{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}},
		{name: "file-handles", calls: []uintptr{unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT}},
	}
}

// The names of groups of which only some uses are refused.
const (
	deniedTracing      = "tracing"
	deniedTerminals    = "terminal-input"
	deniedPersonality  = "personality"
	deniedSockets      = "unusual-sockets"
	deniedInternet     = "internet-sockets"
	deniedForeignCalls = "foreign-architectures"
	deniedDeathSignal  = "parent-death-signal"
	deniedProcesses    = "processes"
)

const (
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID |
		unix.CLONE_NEWNET | unix.CLONE_NEWTIME
	queryPersonality = 0xffffffff
	socketType       = 0xf // the other bits are flags
	msgFastOpen      = 0x20000000
)

// filterFor makes the filter of a policy.
func filterFor(p Policy) ([]unix.SockFilter, error) {
	var rules []rule
	if !p.unixOnly() && !p.Remit.Connect.Any {
		// With MSG_FASTOPEN, sending data connects without connect(), which is all that Landlock checks.
		for number, flags := range map[uintptr]int{unix.SYS_SENDTO: 3, unix.SYS_SENDMSG: 2, unix.SYS_SENDMMSG: 3} {
			rules = append(rules, rule{number, ifAny(flags, msgFastOpen, refused)})
		}
	}
	rules = append(rules,
		// A filter cannot see its flags, which are in memory. With ENOSYS, libraries fall back to clone.
		rule{unix.SYS_CLONE3, []bpf.Instruction{absent}},
		rule{unix.SYS_CLONE, clones(p)},
		rule{unix.SYS_IOCTL, ifOneOf(1, []uint32{unix.TIOCSTI, unix.TIOCLINUX}, refused)},
		rule{unix.SYS_SOCKET, sockets(p)},
		// Other families make no pairs, but the kernel would load their modules.
		rule{unix.SYS_SOCKETPAIR, unlessOneOf(0, []uint32{unix.AF_UNIX}, refused)},
		// Starting the process itself needs these two: the child asks to be stopped, and is released.
		rule{unix.SYS_PTRACE, unlessOneOf(0, []uint32{unix.PTRACE_TRACEME, unix.PTRACE_DETACH}, refused)},
		rule{unix.SYS_PERSONALITY, unlessOneOf(0, []uint32{queryPersonality}, refused)},
	)
	if p.EndsWithCore {
		rules = append(rules, rule{unix.SYS_PRCTL, []bpf.Instruction{
			bpf.LoadAbsolute{Off: lowAt(0), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PR_SET_PDEATHSIG, SkipTrue: 3},
			bpf.LoadAbsolute{Off: lowAt(1), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(unix.SIGKILL), SkipTrue: 1},
			refused,
		}})
	}
	if p.noProcesses() {
		for _, number := range append([]uintptr{unix.SYS_MEMFD_CREATE}, forks...) {
			rules = append(rules, rule{number, []bpf.Instruction{refused}})
		}
	}
	for _, group := range denied() {
		if group.reopenedBy != "" && p.has(group.reopenedBy) {
			continue
		}
		for _, number := range group.calls {
			rules = append(rules, rule{number, []bpf.Instruction{refused}})
		}
	}
	return assemble(rules)
}

// startFlags are the flags with which the core starts a process. The filter must let this through: the child shares the memory of its parent, which
// waits until the child executes another program or exits.
const startFlags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | uint32(unix.SIGCHLD)

// clones stops a process from making namespaces and, if its role gave up processes, anything but threads.
func clones(p Policy) []bpf.Instruction {
	program := ifAny(0, newNamespaces, refused)
	if p.noProcesses() {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: startFlags, SkipTrue: 1},
			refused)
	}
	return program
}

// sockets allows Unix sockets, reading the machine's addresses and routes, and TCP and UDP if the role has a network. Other protocols like TCP
// (MPTCP, SCTP, SMC) would escape the rules for ports.
func sockets(p Policy) []bpf.Instruction {
	const ipv4, ipv6 = unix.AF_INET, unix.AF_INET6
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: lowAt(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: 1},
		allowed,
	}
	netlink := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 4},
		bpf.LoadAbsolute{Off: lowAt(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
		allowed,
		refused,
	}
	if p.has("net-admin") {
		netlink = []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 1}, allowed}
	}
	program = append(program, netlink...)
	raw := p.has("net-raw")
	if raw {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_PACKET, SkipTrue: 1}, allowed)
	}
	if p.unixOnly() && !raw {
		return append(program, refused)
	}
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ipv4, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ipv6, SkipTrue: 1},
		refused,
		bpf.LoadAbsolute{Off: lowAt(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketType},
	)
	if raw {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SOCK_RAW, SkipTrue: 1}, allowed)
	}
	if p.unixOnly() {
		return append(program, refused)
	}
	return append(program, slices.Concat(
		ofType(unix.SOCK_STREAM, 0, unix.IPPROTO_TCP),
		ofType(unix.SOCK_DGRAM, 0, unix.IPPROTO_UDP),
		[]bpf.Instruction{refused},
	)...)
}

// ofType allows a socket type, which has been loaded, with some protocols.
func ofType(kind uint32, protocols ...uint32) []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: kind, SkipTrue: uint8(2*len(protocols)) + 2},
		bpf.LoadAbsolute{Off: lowAt(2), Size: 4},
	}
	for _, protocol := range protocols {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocol, SkipTrue: 1}, allowed)
	}
	return append(program, refused)
}

// deniedTo names the groups that are refused to a policy.
func deniedTo(p Policy) []string {
	names := []string{deniedTracing, deniedTerminals, deniedPersonality, deniedSockets, deniedForeignCalls}
	if p.unixOnly() {
		names = append(names, deniedInternet)
	}
	if p.EndsWithCore {
		names = append(names, deniedDeathSignal)
	}
	if p.noProcesses() {
		names = append(names, deniedProcesses)
	}
	for _, group := range denied() {
		if group.reopenedBy == "" || !p.has(group.reopenedBy) {
			names = append(names, group.name)
		}
	}
	slices.Sort(names)
	return names
}
