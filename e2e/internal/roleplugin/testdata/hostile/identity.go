package main

import (
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var identityAttempts = map[string]func(*attempt){
	"identity.ids":          changeIDs,
	"identity.capabilities": capabilities,
	"identity.prctl":        prctls,
	"identity.priority":     priorities,
	"identity.limits":       limits,
	"identity.dump":         dump,
}

// changeIDs becomes somebody else. Raw system calls are of this thread alone, which dies afterwards.
func changeIDs(a *attempt) {
	other := uintptr(a.number("uid"))
	a.try("setuid root", system(unix.SYS_SETUID, 0))
	a.try("setresuid root", system(unix.SYS_SETRESUID, 0, 0, 0))
	a.try("setreuid root", system(unix.SYS_SETREUID, 0, 0))
	a.try("setgid root", system(unix.SYS_SETGID, 0))
	a.try("setresgid root", system(unix.SYS_SETRESGID, 0, 0, 0))
	if other != 0 && int(other) != os.Getuid() {
		a.try("setresuid the victim", system(unix.SYS_SETRESUID, other, other, other))
		a.try("setresgid the victim", system(unix.SYS_SETRESGID, other, other, other))
	}
	group := uint32(0)
	a.try("setgroups root", system(unix.SYS_SETGROUPS, 1, pointer(&group)))
	a.try("setgroups none", system(unix.SYS_SETGROUPS, 0, 0))
	before, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
	after, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
	var err error = unix.EPERM
	if after == 0 && before != 0 {
		err = nil
	}
	a.try("setfsuid root", err)
	groups, _ := os.Getgroups()
	for _, group := range groups {
		if group == 0 {
			a.try("is in the group of root", nil)
		}
	}
}

// sandboxOf tells what a status file of /proc says of the capabilities of a process, and of what it cannot get rid of.
func sandboxOf(path string, tell func(string, error)) {
	status, err := os.ReadFile(path)
	if err != nil {
		tell("an own status that cannot be read: "+err.Error(), nil)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		var err error
		switch name {
		case "CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd":
			if strings.Trim(value, "0") == "" {
				err = errors.New("empty")
			}
			tell(name+" "+value, err)
		case "NoNewPrivs":
			if value == "1" {
				err = errors.New("set")
			}
			tell("gain privileges by execve (no_new_privs "+value+")", err)
		case "Seccomp":
			if value == "2" {
				err = errors.New("filter")
			}
			tell("run without seccomp ("+value+")", err)
		}
	}
}

func capabilities(a *attempt) {
	sandboxOf("/proc/thread-self/status", func(what string, err error) { a.try(what, err) })
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0), Inheritable: ^uint32(0)}, {Effective: 0x1ff, Permitted: 0x1ff, Inheritable: 0x1ff}}
	a.try("capset, all", unix.Capset(&header, &data[0]))
	data = [2]unix.CapUserData{{Inheritable: 1 << unix.CAP_NET_RAW}}
	a.try("capset, inheritable net-raw", unix.Capset(&header, &data[0]))
	a.try("raise an ambient capability", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_RAW, 0, 0))
	a.try("set securebits", unix.Prctl(unix.PR_SET_SECUREBITS, 1, 0, 0, 0))
}

func prctls(a *attempt) {
	a.try("clear no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
	a.try("clear seccomp", unix.Prctl(unix.PR_SET_SECCOMP, 0, 0, 0, 0))
	a.try("PR_CAPBSET_DROP", unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_RAW, 0, 0, 0))
	a.try("PR_SET_MM, another executable", unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_EXE_FILE, 0, 0, 0))
	a.try("PR_SET_MM, other arguments", unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_ARG_START, 0x1000, 0, 0))
	// PR_MCE_KILL with arguments that the kernel does not know is EINVAL for whoever may.
	a.note("PR_SET_KEEPCAPS", say(or(unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0))))
	a.note("PR_SET_CHILD_SUBREAPER", say(or(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))))
	a.note("PR_SET_PTRACER any", say(or(unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0))))
}

var errDone = errors.New("done, which concerns only itself")

// or is what is said of what only concerns the process itself.
func or(err error) error {
	if err == nil {
		return errDone
	}
	return err
}

func priorities(a *attempt) {
	a.try("setpriority -20", unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
	parameter := int32(50)
	a.try("SCHED_FIFO", system(unix.SYS_SCHED_SETSCHEDULER, 0, 1, pointer(&parameter)))
	a.try("SCHED_RR", system(unix.SYS_SCHED_SETSCHEDULER, 0, 2, pointer(&parameter)))
	deadline := struct {
		size, policy               uint32
		flags                      uint64
		nice                       int32
		priority                   uint32
		runtime, deadline, period_ uint64
	}{size: 48, policy: 6, runtime: 1e7, deadline: 1e8, period_: 1e8}
	a.try("SCHED_DEADLINE", system(unix.SYS_SCHED_SETATTR, 0, pointer(&deadline), 0))
	a.try("ioprio_set, real time", system(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
	a.try("mlockall 1 GiB", lockMemory())
}

// lockMemory locks so much memory as no role may.
func lockMemory() error {
	memory, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	// Locked on fault: nothing is taken by the asking.
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)), 1)
	if errno != 0 {
		return errno
	}
	return nil
}

// limits raises its own limits.
func limits(a *attempt) {
	for name, resource := range map[string]int{
		"open files": unix.RLIMIT_NOFILE, "processes": unix.RLIMIT_NPROC, "core": unix.RLIMIT_CORE, "locked memory": unix.RLIMIT_MEMLOCK,
		"priority": unix.RLIMIT_RTPRIO, "message queues": unix.RLIMIT_MSGQUEUE,
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			continue
		}
		if now.Max == unix.RLIM_INFINITY {
			if resource == unix.RLIMIT_NOFILE || resource == unix.RLIMIT_CORE {
				a.try("has no limit of "+name, nil)
			}
			continue
		}
		raised := unix.Rlimit{Cur: now.Max + 1, Max: now.Max + 1}
		a.try("raise the limit of "+name, unix.Prlimit(0, resource, &raised, nil))
	}
}

// dump leaves a dump of its memory where others, or what handles dumps on the machine, find it.
func dump(a *attempt) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil && limit.Max <= 1 { // of one byte no file is written, and no handler is started
		err = errors.New("the limit allows none")
	}
	a.try("leave a dump", err)
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err == nil && dumpable != 1 {
		err = errors.New("not dumpable")
	}
	a.try("is dumpable", err)
}
