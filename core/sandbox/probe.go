package sandbox

import (
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/proto/remit"
)

// probeUser is "nobody" on most systems. A process that does nothing has it for a moment.
const probeUser = 65534

// Host is what this machine and this user can enforce.
type Host struct {
	log hclog.Logger
	// lacks are the parts that cannot be enforced, with the reason.
	lacks map[string]string
	// landlock is the Landlock version; 0: none.
	landlock       int
	root           bool
	held           capabilitySet
	lastCapability uintptr
}

// Probe finds out what can be enforced here. It tries each part on threads that die and on a process that does nothing. It takes some milliseconds.
func Probe(log hclog.Logger, groups *cgroup.Tree) (*Host, error) {
	h := &Host{log: log, lacks: make(map[string]string), root: os.Geteuid() == 0, lastCapability: lastCapability()}
	var err error
	if h.held, err = heldCapabilities(); err != nil {
		return nil, fmt.Errorf("sandbox: read the core's capabilities: %w", err)
	}
	for _, missing := range groups.Missing() {
		h.lacks[missing.GetName()] = missing.GetReason()
	}
	if !h.root {
		const reason = "the core is not root"
		h.lacks[MissingOwnUID] = reason + " and cannot give roles their own users"
		h.lacks[MissingMounts] = reason + " and cannot give roles their own view of the file systems: only Landlock restricts them"
		h.lacks[MissingIPC] = reason + " and cannot give roles their own System V IPC and message queues"
		h.lacks[MissingNotDumpable] = reason + " and cannot make its executables unreadable"
	}
	if h.landlock, err = landlockVersion(); err != nil {
		h.lacks[MissingLandlockFiles] = fmt.Sprintf("Landlock is missing or off (%v): use Linux 5.13 or newer, with landlock in the kernel parameter lsm=", err)
	}
	h.tryThreads()
	switch {
	case !h.can(MissingLandlockFiles):
		h.lacks[MissingLandlockTCP] = h.lacks[MissingLandlockFiles]
	case h.landlock < 4:
		h.lacks[MissingLandlockTCP] = fmt.Sprintf("version %d of the kernel's Landlock has no rules for ports: use Linux 6.7 or newer", h.landlock)
	}
	h.tryProcess()
	for part, reason := range h.lacks {
		log.Debug("cannot enforce a part of the sandbox", "part", part, "reason", reason)
	}
	return h, nil
}

// tryThreads tries each part on a thread of its own.
func (h *Host) tryThreads() {
	for _, part := range []struct {
		name string
		try  func() error
	}{
		{MissingIPC, func() error { return unix.Unshare(unix.CLONE_NEWIPC) }},
		{MissingMounts, func() error {
			list, err := places(Policy{})
			if err != nil {
				return err
			}
			return view(list, probeUser, probeUser)
		}},
		{MissingNoNewPrivileges, func() error { return prctl(unix.PR_SET_NO_NEW_PRIVS, 1) }},
		{MissingLandlockFiles, func() error {
			list, err := places(Policy{})
			if err != nil {
				return err
			}
			if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
				return err
			}
			return landlock(h.landlock, list, false, -1, remit.Remit{})
		}},
		{MissingCapabilities, func() error { return drop(0, h.lastCapability, h.root) }},
		{MissingSeccomp, func() error {
			filter, err := filterFor(Policy{})
			if err != nil {
				return err
			}
			if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
				return err
			}
			if err := load(filter); err != nil {
				return err
			}
			if err := unix.Unshare(0); err != unix.EPERM { // a no-op that only the filter refuses
				return fmt.Errorf("the filter does not hold (%v)", err)
			}
			return nil
		}},
	} {
		if !h.can(part.name) {
			continue
		}
		done := make(chan error)
		onThread(func() { done <- part.try() })
		if err := <-done; err != nil {
			h.lacks[part.name] = fmt.Sprintf("the kernel refuses it: %v", err)
		}
	}
}

// tryProcess starts a process that does nothing, in a sandbox of the parts that have not failed so far. It leaves out each part that fails, until the
// process starts.
func (h *Host) tryProcess() {
	executable, err := makeProbeExecutable()
	if err != nil {
		h.log.Debug("cannot try the sandbox with a process, because there is no memfd to execute", "error", err)
		return
	}
	defer func() { _ = executable.Close() }()
	policy := Policy{UID: probeUser, GID: probeUser, OwnUser: h.can(MissingOwnUID), Defaults: Defaults{OpenFiles: 64}}
	for range 3 {
		var undumpable bool
		err := h.startAndEnd(policy, executable, func(pid int) error {
			undumpable = !dumpable(pid)
			return nil
		})
		var of *PartError
		switch {
		case err == nil:
			if h.can(MissingNotDumpable) && !undumpable {
				h.lacks[MissingNotDumpable] = "the kernel lets other processes look into a process that cannot read its executable"
			}
			return
		case errors.As(err, &of) && h.can(of.Part):
			h.lacks[of.Part] = fmt.Sprintf("the kernel refuses it: %v", of.Err)
		case errors.Is(err, ErrExec) && h.can(MissingOwnUID):
			h.lacks[MissingOwnUID] = fmt.Sprintf("cannot start a process as another user: %v", err)
			h.lacks[MissingNotDumpable] = h.lacks[MissingOwnUID]
			policy.OwnUser = false
		default:
			h.log.Warn("the process that tries the sandbox does not start", "error", err)
			return
		}
	}
}

func (h *Host) startAndEnd(p Policy, executable *os.File, inspect func(pid int) error) error {
	child, err := h.start(p, Command{Executable: executable, Name: "reeve-sandbox"}, inspect)
	if err != nil {
		return err
	}
	_, err = child.Process.Wait()
	if child.PIDFD != nil {
		_ = child.PIDFD.Close()
	}
	child.Release()
	return err
}

// dumpable reports whether other processes of its user can look into a process: the kernel then gives its entries in /proc to that user.
func dumpable(pid int) bool {
	var stat unix.Stat_t
	return unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &stat) != nil || stat.Uid != 0
}

// makeProbeExecutable returns an executable in memory that exits at once and that only its owner can read.
func makeProbeExecutable() (*os.File, error) {
	fd, err := unix.MemfdCreate("reeve-sandbox", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, every memfd is executable
		fd, err = unix.MemfdCreate("reeve-sandbox", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "reeve-sandbox")
	_, err = file.Write(minimalELF())
	if err == nil {
		err = unix.Fchmod(fd, 0o511)
	}
	if err == nil {
		// A file that is open for writing cannot be executed.
		var again *os.File
		if again, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil {
			return again, file.Close()
		}
	}
	_ = file.Close()
	return nil, err
}

// minimalELF is an ELF executable: its header, one segment, and the code that exits.
func minimalELF() []byte {
	const base, headers = 0x400000, 64 + 56
	image := make([]byte, headers, headers+len(exitCode))
	copy(image, "\x7fELF\x02\x01\x01")
	put := func(at, size int, value uint64) {
		for i := range size {
			image[at+i] = byte(value >> (8 * i))
		}
	}
	size := uint64(headers + len(exitCode))
	put(16, 2, 2) // type: executable
	put(18, 2, elfMachine)
	put(20, 4, 1)
	put(24, 8, base+headers)
	put(32, 8, 64) // offset of the segment's header
	put(52, 2, 64)
	put(54, 2, 56)
	put(56, 2, 1)
	put(64, 4, 1) // loaded, read and execute
	put(68, 4, 5)
	put(80, 8, base)
	put(88, 8, base)
	put(96, 8, size)
	put(104, 8, size)
	put(112, 8, 0x1000)
	return append(image, exitCode...)
}
