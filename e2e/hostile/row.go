package hostile

// The parts of a sandbox that may be missing, by their names in the node's status.
const (
	ownUID    = "own-uid"
	mounts    = "mounts"
	ipc       = "ipc"
	landlock  = "landlock-files"
	tcp       = "landlock-tcp"
	seccomp   = "seccomp"
	memory    = "cgroup-memory"
	processes = "cgroup-processes"
)

// How a row is judged.
const (
	byWord         = "by what the role was answered, call by call"
	byVictim       = "by the victim's own keys, leases, files and sockets, and by what the role was answered"
	byFiles        = "by the files, which are as before, and by what the role was answered"
	byCore         = "from outside: the same core, Home, answers at once; the victim works on"
	byMetrics      = "from outside: the node's metrics are read while it lies, and are whole and right but for its own"
	byReturn       = "from outside: the same core, Home with all of its roles before anybody makes room; the victim works on"
	byPublished    = byCore + "; by what the cluster shows of the node"
	byStore        = "by when its last write to the store was acknowledged; from outside: the processes that there are"
	byStoreOutside = "from outside: the store's process, its memory, and what the victim has written meanwhile"
	byOutside      = "from outside: the processes that there are"
	byCluster      = "by what the attackers and another operator were answered; from outside: the curator's process and its memory"
)

// Row is one row of the table: one way to attack, in as many concrete tries as there are.
type Row struct {
	// ID names the attempt, for the roles too. Group is what is attacked.
	ID, Group string
	// Attempt is what is tried, and Expect what is to become of it.
	Attempt, Expect string
	// Judged is how that is found out.
	Judged string
	// Role performs the attempt; empty: the test does, as somebody outside of the cluster.
	Role string
	// Needs are the parts of the sandbox without which the row is not asserted.
	Needs []string
	// Growth is how much more memory the store may have afterwards, in KiB; 0: that is not asked.
	Growth int
}

// Rows are all rows, in the order in which they are shown.
func Rows() []Row {
	var all []Row
	for _, group := range [][]Row{keyRows, socketRows, fileRows, processRows, hostRows, binaryRows, kernelRows, lieRows, exhaustRows, useRows, clusterRows, outliveRows, diskRows} {
		all = append(all, group...)
	}
	return all
}

const refused = "every try is refused"

var keyRows = rows("Another's keys", "attacker", byVictim, nil, []Row{
	{ID: "keys.read", Attempt: "read: single keys, prefixes, ranges that straddle, \\0, count only, serializable, old revisions", Expect: refused},
	{ID: "keys.write", Attempt: "put, delete and compact: ignore_value, ignore_lease, prev_kv, on another's lease, outside of all prefixes", Expect: refused},
	{ID: "keys.watch", Attempt: "watch: single keys, prefixes, from the past, with prev_kv, ranges that straddle", Expect: refused},
	{ID: "keys.txn", Attempt: "transactions: compares, branches not taken, nested, another's lease", Expect: refused},
	{ID: "keys.lease", Attempt: "leases of others: time to live, keep alive, revoke, the list, guessed IDs, IDs that others would get", Expect: refused},
	{ID: "keys.auth", Attempt: "every call of etcd's authentication, becoming root", Expect: refused},
	{ID: "keys.cluster", Attempt: "every call that changes the store's members", Expect: refused},
	{ID: "keys.maintenance", Attempt: "alarms, defragmentation, hashes, snapshot, leadership, downgrade", Expect: refused},
	{ID: "keys.metadata", Attempt: "tokens and names of others in a call's metadata and authority", Expect: refused},
	{ID: "keys.other", Attempt: "election, lock, reflection, channelz, the role protocol and the cluster API on the store's socket", Expect: refused},
	{ID: "keys.leases", Attempt: "5,000 leases", Expect: "refused at the quota; the victim's leases are not"},
	{ID: "keys.quota", Attempt: "300 MiB of values", Expect: "refused at the quota; the victim writes on", Role: "glutton"},
})

var socketRows = rows("Another's sockets", "attacker", byVictim, nil, []Row{
	{ID: "sockets.consensus", Attempt: "connect to the consensus sockets of others, by path and by /proc/PID/root", Expect: refused},
	{ID: "sockets.host", Attempt: "connect to the host sockets of others, by path and by /proc/PID/root", Expect: refused},
	{ID: "sockets.role", Attempt: "connect to the role sockets and further sockets of others, by path and by /proc/PID/root", Expect: refused, Needs: []string{ownUID}},
	{ID: "sockets.node", Attempt: "connect to the API of the node", Expect: refused, Needs: []string{ownUID}},
	{ID: "sockets.abstract", Attempt: "connect to abstract sockets of the machine", Expect: refused, Needs: []string{landlock}},
	{ID: "sockets.makes", Attempt: "make sockets and links in the directories of the core's sockets", Expect: refused, Needs: []string{landlock}},
	{ID: "sockets.swapdir", Attempt: "put links in place of its directories and its log; descriptors that it was not to have", Expect: refused, Needs: []string{landlock}},
	{ID: "sockets.lend", Attempt: "claim another's credentials on a connection; leave descriptors with the core (SCM_CREDENTIALS, SCM_RIGHTS)", Expect: "refused, and the core's descriptors do not grow", Needs: []string{ownUID}},
	{ID: "sockets.swap", Attempt: "put a link to the victim's role socket in place of its own, and have the core connect again", Expect: "nobody but the core has come to the victim, and the role is ended", Role: "swapper", Judged: byCore},
})

var fileRows = rows("Files", "attacker", byFiles, []string{landlock}, []Row{
	{ID: "files.secrets", Attempt: "sealed configuration, owner key, parameters: read, write, link to, rename", Expect: refused},
	{ID: "files.roles", Attempt: "directories and logs of other roles, the store's data: read, write, link to, rename", Expect: refused},
	{ID: "files.core", Attempt: "the core's own files, its log, its records of instances and assignments: read, write, link to, rename", Expect: refused},
	{ID: "files.host", Attempt: "the machine's files, devices and settings", Expect: refused},
	{ID: "files.handle", Attempt: "files by handles, past every path", Expect: refused},
	{ID: "files.mode", Attempt: "devices, files of root, file capabilities", Expect: refused},
})

var processRows = rows("Processes", "attacker", byWord, nil, []Row{
	{ID: "process.proc", Attempt: "environ, mem, maps, fd, root, cwd, ns of the victim, the core, the store and init in /proc", Expect: refused, Needs: []string{landlock, ownUID}},
	{ID: "process.trace", Attempt: "ptrace, kcmp, perf_event_open, get_robust_list, migrate_pages, prlimit, process_madvise of others", Expect: refused, Needs: []string{ownUID}},
	{ID: "process.memory", Attempt: "process_vm_readv and process_vm_writev of others", Expect: refused, Needs: []string{landlock, ownUID}},
	{ID: "process.pidfd", Attempt: "pidfd_getfd and pidfd_send_signal of others", Expect: refused, Needs: []string{landlock, ownUID}},
	{ID: "process.signals", Attempt: "kill, tgkill, sigqueue, setpgid, priority and affinity of others", Expect: refused, Needs: []string{ownUID}},
	{ID: "process.list", Attempt: "see which processes there are", Expect: refused, Needs: []string{mounts}},
})

var hostRows = rows("Host calls", "grantee", byFiles, nil, []Row{
	{ID: "host.ungranted", Attempt: "every call that needs a grant, without any", Expect: refused, Role: "attacker"},
	{ID: "host.climb", Attempt: "paths that climb out of the granted one", Expect: refused},
	{ID: "host.links", Attempt: "symbolic and hard links, a FIFO, a directory in place of the granted file", Expect: refused},
	{ID: "host.race", Attempt: "the granted path swapped for a link in a loop, for two seconds of calls", Expect: "nothing but its own file is read or replaced"},
	{ID: "host.big", Attempt: "messages of 4 to 64 MiB", Expect: refused},
	{ID: "host.streams", Attempt: "10,000 streams that are not read", Expect: "the core answers others", Judged: byCore},
	{ID: "host.slow", Attempt: "500 connections with pings and windows without end that are never read", Expect: "the core answers others", Judged: byCore},
	{ID: "host.garbage", Attempt: "bytes that are no HTTP/2, resets, continuations, settings, header bombs", Expect: "the core answers others", Judged: byCore},
})

var binaryRows = rows("Its own executable", "attacker", byFiles, nil, []Row{
	{ID: "binary.replace", Attempt: "change the bytes that it runs from: /proc/self/exe, its path, the store's directory", Expect: refused},
	{ID: "binary.other", Attempt: "execute what it wrote, and programs of the machine", Expect: refused, Needs: []string{landlock}},
	{ID: "binary.memfd", Attempt: "execute a copy in memory", Expect: "what runs is in the same sandbox: every try from there is refused", Needs: []string{landlock}},
	{ID: "binary.setuid", Attempt: "execute set-uid programs", Expect: refused, Needs: []string{landlock}},
})

var kernelRows = rows("The kernel", "attacker", byWord, []string{seccomp}, []Row{
	{ID: "network.raw", Attempt: "raw, packet and XDP sockets", Expect: refused},
	{ID: "network.route", Attempt: "routes, interfaces, netfilter, audit over netlink", Expect: refused},
	{ID: "network.exotic", Attempt: "AF_ALG, vsock, Bluetooth, CAN, TIPC, RDS, key, SMC, MPTCP, SCTP", Expect: refused},
	{ID: "network.none", Attempt: "TCP, UDP and ping without a granted port", Expect: refused},
	{ID: "network.connect", Attempt: "connect to ports that are not granted; fast open", Expect: refused, Role: "talker", Needs: []string{tcp}},
	{ID: "network.listen", Attempt: "listen on ports that are not granted", Expect: refused, Role: "talker", Needs: []string{tcp}},
	{ID: "kernel.mounts", Attempt: "mount, fsopen, open_tree, move_mount, mount_setattr, pivot_root, umount, swap, quotas", Expect: refused},
	{ID: "kernel.namespaces", Attempt: "unshare, clone, clone3 and setns of every namespace; root in a user namespace", Expect: refused},
	{ID: "kernel.modules", Attempt: "modules, kexec", Expect: refused},
	{ID: "kernel.keyrings", Attempt: "keyrings", Expect: refused},
	{ID: "kernel.bpf", Attempt: "bpf maps and programs", Expect: refused},
	{ID: "kernel.clock", Attempt: "clock_settime, settimeofday, adjtimex", Expect: refused},
	{ID: "kernel.names", Attempt: "sethostname, syslog, vhangup, acct, iopl, ioperm", Expect: refused},
	{ID: "kernel.reboot", Attempt: "reboot (with numbers that the kernel does not know)", Expect: refused},
	{ID: "kernel.tracing", Attempt: "userfaultfd, io_uring, perf_event_open, fanotify, seccomp notifiers, memfd_secret", Expect: refused},
	{ID: "kernel.chroot", Attempt: "chroot", Expect: refused},
	{ID: "kernel.terminal", Attempt: "a terminal, TIOCSTI", Expect: refused},
	{ID: "identity.ids", Attempt: "become root or the victim: setuid, setgid, setgroups, setfsuid", Expect: refused},
	{ID: "identity.capabilities", Attempt: "capset, ambient capabilities, securebits; any capability, no_new_privs or seccomp that is not as it must be", Expect: refused, Needs: []string{seccomp, "capabilities"}},
	{ID: "identity.prctl", Attempt: "clear no_new_privs and seccomp, PR_SET_MM, PR_CAPBSET_DROP", Expect: refused},
	{ID: "identity.priority", Attempt: "priority, real time, deadline and I/O classes, locked memory", Expect: refused},
	{ID: "identity.limits", Attempt: "raise its own limits", Expect: refused},
	{ID: "identity.dump", Attempt: "leave a dump of its memory, be dumpable", Expect: refused, Needs: []string{seccomp, "not-dumpable"}},
})

// rows fills in what the rows of a group have in common.
func rows(group, role, judged string, needs []string, rows []Row) []Row {
	for i := range rows {
		rows[i].Group = group
		if rows[i].Role == "" {
			rows[i].Role = role
		}
		if rows[i].Judged == "" {
			rows[i].Judged = judged
		}
		if rows[i].Needs == nil {
			rows[i].Needs = needs
		}
	}
	return rows
}
