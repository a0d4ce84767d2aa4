package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	lockedMemory = 64 << 10
	// oomScore makes the kernel kill a role before the core when the machine is out of memory.
	oomScore = 100
)

// limit is a resource limit, soft and hard.
type limit struct {
	resource int
	name     string
	value    uint64
}

// limitsOf returns the limits of a process. Without control groups the number of processes is limited per user, which makes sense only if the user is
// the role's alone.
func limitsOf(p Policy, countsProcesses bool) []limit {
	limits := []limit{
		// A core file would hold the role's secrets outside its sandbox. 1 is too small for a file and also keeps the kernel from starting a handler,
		// which 0 does not.
		{unix.RLIMIT_CORE, "core files", 1},
		{unix.RLIMIT_MSGQUEUE, "message queues", 0},
		{unix.RLIMIT_RTPRIO, "real-time priority", 0},
	}
	if !p.has("ipc-lock") {
		limits = append(limits, limit{unix.RLIMIT_MEMLOCK, "locked memory", lockedMemory})
	}
	if files := p.openFiles(); files > 0 {
		limits = append(limits, limit{unix.RLIMIT_NOFILE, "open files", uint64(files)})
	}
	if processes := p.Limits().Processes; processes > 0 && p.OwnUser && !countsProcesses {
		limits = append(limits, limit{unix.RLIMIT_NPROC, "processes", uint64(processes)})
	}
	return limits
}

// bound sets the limits of a stopped child. The calling thread must have started it, and ends soon.
func bound(pid int, limits []limit, uid, gid uint32) error {
	err := setLimits(pid, limits)
	if err != unix.EPERM {
		return err
	}
	// Without CAP_SYS_RESOURCE the kernel compares the real users of both processes. So this thread takes the role's real user for the moment. The
	// effective user, which decides about everything else, stays.
	if err := realUser(uid, gid); err != nil {
		return fmt.Errorf("as the role's user: %w", err)
	}
	err = setLimits(pid, limits)
	if back := realUser(uint32(os.Geteuid()), uint32(os.Getegid())); err == nil {
		err = back
	}
	return err
}

func realUser(uid, gid uint32) error {
	const unchanged = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), unchanged, unchanged); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), unchanged, unchanged); errno != 0 {
		return errno
	}
	return nil
}

func setLimits(pid int, limits []limit) error {
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Prlimit(pid, l.resource, nil, &now); err != nil {
			return err
		}
		value := min(l.value, now.Max) // the core cannot exceed its own limit
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
			if err == syscall.EPERM {
				return err
			}
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// raiseOOMScore makes the kernel kill a process before the core when memory is short. Raising the score is always allowed.
func raiseOOMScore(pid int) error {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	score := min(max(own, 0)+oomScore, 1000)
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}
