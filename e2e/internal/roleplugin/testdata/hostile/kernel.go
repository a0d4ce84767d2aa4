package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func text(s string) uintptr {
	p, _ := unix.BytePtrFromString(s)
	return pointer(p)
}

var kernelAttempts = map[string]func(*attempt){
	"kernel.mounts":     mounts,
	"kernel.namespaces": namespaces,
	"kernel.modules":    modules,
	"kernel.keyrings":   keyrings,
	"kernel.bpf":        bpf,
	"kernel.clock":      clocks,
	"kernel.names":      machineNames,
	"kernel.reboot":     reboot,
	"kernel.tracing":    exotic,
	"kernel.chroot":     func(a *attempt) { a.try("chroot", unix.Chroot("/")) },
	"kernel.terminal":   terminal,
}

func mounts(a *attempt) {
	directory := a.data("mount")
	_ = os.Mkdir(directory, 0o755)
	for _, kind := range []string{"tmpfs", "proc", "sysfs", "cgroup2", "devpts", "overlay", "debugfs", "mqueue"} {
		if a.try("mount "+kind, unix.Mount("none", directory, kind, 0, "")) {
			_ = unix.Unmount(directory, unix.MNT_DETACH)
		}
	}
	if a.try("bind mount /", unix.Mount("/", directory, "", unix.MS_BIND, "")) {
		_ = unix.Unmount(directory, unix.MNT_DETACH)
	}
	a.try("remount / with other flags", unix.Mount("none", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	a.try("make / shared", unix.Mount("none", "/", "", unix.MS_SHARED, ""))
	a.try("fsopen", descriptor(unix.SYS_FSOPEN, text("tmpfs"), 0))
	a.try("open_tree, a clone", descriptor(unix.SYS_OPEN_TREE, uintptr(unix.AT_FDCWD&(1<<32-1)), text(directory), unix.OPEN_TREE_CLONE))
	a.try("fspick", descriptor(unix.SYS_FSPICK, uintptr(unix.AT_FDCWD&(1<<32-1)), text("/"), 0))
	a.try("move_mount", unix.MoveMount(unix.AT_FDCWD, "/", unix.AT_FDCWD, directory, 0))
	a.try("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, directory, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
	a.try("pivot_root", unix.PivotRoot(directory, directory))
	a.try("umount its own directory", unix.Unmount(a.data(), unix.MNT_DETACH))
	a.try("umount /proc", unix.Unmount("/proc", unix.MNT_DETACH))
	a.try("swapon", system(unix.SYS_SWAPON, text(a.data("swap")), 0))
	a.try("swapoff", system(unix.SYS_SWAPOFF, text(a.data("swap"))))
	a.try("quotactl", system(unix.SYS_QUOTACTL, uintptr(0x800002<<8), text("/dev/none"), 0, 0)) // Q_QUOTAON
}

var allNamespaces = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"network", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME},
}

func namespaces(a *attempt) {
	for _, namespace := range allNamespaces {
		a.try("unshare "+namespace.name, unix.Unshare(int(namespace.flag)))
		if namespace.flag != unix.CLONE_NEWTIME { // which clone cannot make
			pid, err := fork(unix.SYS_CLONE, namespace.flag|uintptr(unix.SIGCHLD), 0)
			if err == nil {
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
			a.try("clone into a new "+namespace.name, err)
		}
		arguments := cloneArgs{flags: uint64(namespace.flag), exitSignal: uint64(unix.SIGCHLD)}
		pid, err := fork(unix.SYS_CLONE3, pointer(&arguments), unsafe.Sizeof(arguments))
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		a.try("clone3 into a new "+namespace.name, err)
	}
	// In a process of one thread, as user namespaces need it, with what would make it root there.
	command := exec.Command("/proc/self/exe")
	command.Env = []string{childVariable + "=namespace"}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	a.try("a process that is root in a user namespace", command.Run())
	for _, pid := range append(a.list("pids"), "self") {
		for _, name := range []string{"mnt", "net", "user", "pid"} {
			fd, err := unix.Open("/proc/"+pid+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			a.try("setns "+name+" of "+pid, unix.Setns(fd, 0))
			_ = unix.Close(fd)
		}
	}
}

// cloneArgs is struct clone_args, as far as it is needed.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
}

func modules(a *attempt) {
	a.try("init_module", system(unix.SYS_INIT_MODULE, text("x"), 1, text("")))
	if fd, err := unix.Open(a.data("secret.ko"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600); err == nil {
		a.try("finit_module", system(unix.SYS_FINIT_MODULE, uintptr(fd), text(""), 0))
		_ = unix.Close(fd)
	}
	a.try("delete_module", system(unix.SYS_DELETE_MODULE, text("hostile_none"), 0))
	a.try("kexec_load", system(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0))
	a.try("kexec_file_load", system(unix.SYS_KEXEC_FILE_LOAD, ^uintptr(0), ^uintptr(0), 0, 0, 0))
}

func keyrings(a *attempt) {
	a.try("add_key", system(unix.SYS_ADD_KEY, text("user"), text("hostile"), text("payload"), 7, ^uintptr(3)+1)) // the session's
	a.try("add_key for all of its user", system(unix.SYS_ADD_KEY, text("user"), text("hostile"), text("payload"), 7, ^uintptr(4)+1))
	a.try("request_key", system(unix.SYS_REQUEST_KEY, text("user"), text("hostile"), 0, ^uintptr(3)+1))
	_, err := unix.KeyctlJoinSessionKeyring("")
	a.try("keyctl, a new session", err)
	_, err = unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	a.try("keyctl, the keyring of its user", err)
	_, err = unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	a.try("keyctl, the keyring of the session", err)
}

func bpf(a *attempt) {
	// An array map of one element.
	attributes := [16]uint32{2, 4, 4, 1}
	a.try("bpf, a map", descriptor(unix.SYS_BPF, 0, pointer(&attributes), unsafe.Sizeof(attributes)))
	// return 0, as a socket filter.
	instructions := [2]uint64{0xb7, 0x95}
	program := struct {
		kind, count    uint32
		code, license  uint64
		level, size    uint32
		log            uint64
		version, flags uint32
	}{kind: 1, count: 2, code: uint64(pointer(&instructions)), license: uint64(text("GPL"))}
	a.try("bpf, a program", descriptor(unix.SYS_BPF, 5, pointer(&program), unsafe.Sizeof(program)))
}

func clocks(a *attempt) {
	// Times that are the present ones, so that nothing changes where it is allowed.
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	a.try("clock_settime", system(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, pointer(&now)))
	var day unix.Timeval
	_ = unix.Gettimeofday(&day)
	a.try("settimeofday", unix.Settimeofday(&day))
	timex := unix.Timex{Modes: unix.ADJ_TICK, Tick: 10000}
	_, err := unix.Adjtimex(&timex)
	a.try("adjtimex", err)
	a.try("clock_adjtime", system(unix.SYS_CLOCK_ADJTIME, unix.CLOCK_REALTIME, pointer(&timex)))
	a.try("open /dev/rtc0", openFor("/dev/rtc0", os.O_RDONLY))
}

func machineNames(a *attempt) {
	name, _ := os.Hostname()
	a.try("sethostname", unix.Sethostname([]byte(name)))
	a.try("setdomainname", unix.Setdomainname([]byte("")))
	a.try("syslog", func() error { _, err := unix.Klogctl(3, make([]byte, 100)); return err }()) // read all
	a.try("vhangup", system(unix.SYS_VHANGUP))
	a.try("acct", system(unix.SYS_ACCT, 0))
	a.try("iopl", system(unix.SYS_IOPL, 3))
	a.try("ioperm", system(unix.SYS_IOPERM, 0x80, 1, 1))
}

// reboot asks for it with numbers that the kernel does not know: who may reboot gets EINVAL.
func reboot(a *attempt) {
	err := system(unix.SYS_REBOOT, 1, 2, 3, 0)
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	a.try("reboot", err)
}

func exotic(a *attempt) {
	a.try("userfaultfd", descriptor(unix.SYS_USERFAULTFD, unix.O_CLOEXEC))
	a.try("userfaultfd, user mode only", descriptor(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1))
	var parameters [120]byte
	a.try("io_uring_setup", descriptor(unix.SYS_IO_URING_SETUP, 4, pointer(&parameters)))
	attributes := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK}
	for what, pid := range map[string]int{"of itself": 0, "of a processor": -1} {
		cpu := -1
		if pid == -1 {
			cpu = 0
		}
		fd, err := unix.PerfEventOpen(&attributes, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if a.try("perf_event_open "+what, err) {
			_ = unix.Close(fd)
		}
	}
	a.try("fanotify_init", descriptor(unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_CONTENT, 0))
	a.try("fanotify_init, unprivileged", descriptor(unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_NOTIF|0x200, 0))
	a.try("lookup_dcookie", system(unix.SYS_LOOKUP_DCOOKIE, 0, 0, 0))
	a.try("seccomp, a notifier", descriptor(unix.SYS_SECCOMP, 1, 8, 0))
	a.try("memfd_secret", descriptor(unix.SYS_MEMFD_SECRET, 0))
	a.try("move_pages of another", system(unix.SYS_MOVE_PAGES, 1, 0, 0, 0, 0, 0))
}

func terminal(a *attempt) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if !a.try("open /dev/tty", err) {
		fd = 0
	} else {
		defer unix.Close(fd)
	}
	letter := byte(' ')
	a.try("TIOCSTI", system(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, pointer(&letter)))
	a.try("TIOCSCTTY", system(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSCTTY, 1))
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		// A terminal of its own is no harm; putting characters into it is refused by kernels of today.
		a.note("open /dev/ptmx", "done")
		_ = unix.Close(master)
	}
}
