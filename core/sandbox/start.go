package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// spread is the gap below the executable's descriptor, free for the copies that a fork makes.
const spread = 32

// firstInherited is the first descriptor that a process must not inherit.
const firstInherited = 3

// start is a process to be started, with all that can be prepared before a thread is confined.
type start struct {
	host    *Host
	policy  Policy
	command Command
	confine bool
	places  []place
	filter  []unix.SockFilter
	keep    capabilitySet
	limits  []limit
	input   *os.File
	program int
	// entered says that the thread is in the process's control group.
	entered bool
	// inspect, if not nil, is called while the process is stopped.
	inspect func(pid int) error
}

// outcome is the result of a start.
type outcome struct {
	process *os.Process
	pidfd   *os.File
	err     error
}

// Start starts a process in its sandbox. It leaves out what Missing lists; everything else is enforced, or the process does not run.
//
// The error is a *PathError if a granted path does not exist, and a *PartError if a part of the sandbox failed. It wraps ErrExec if the kernel does
// not execute the executable.
func (h *Host) Start(p Policy, c Command) (*Child, error) { return h.start(p, c, nil) }

func (h *Host) start(p Policy, c Command, inspect func(pid int) error) (*Child, error) {
	s, err := h.prepare(p, c)
	if err != nil {
		return nil, err
	}
	s.inspect = inspect
	defer s.close()
	stopped := make(chan int)
	proceed := make(chan error)
	done := make(chan outcome)
	child := &Child{}
	onThread(func() {
		process, pidfd, err := s.run(stopped, proceed)
		if err != nil || !p.EndsWithCore {
			done <- outcome{process, pidfd, err}
			return
		}
		// The kernel kills the process when this thread ends.
		ended := make(chan struct{})
		child.release = sync.OnceFunc(func() { close(ended) })
		done <- outcome{process, pidfd, err}
		<-ended
	})
	select {
	case pid := <-stopped:
		// This goroutine does it, because the thread is confined by now.
		proceed <- s.whileStopped(pid)
		o := <-done
		child.Process, child.PIDFD, err = o.process, o.pidfd, o.err
	case o := <-done:
		child.Process, child.PIDFD, err = o.process, o.pidfd, o.err
	}
	if err != nil {
		return nil, err
	}
	return child, nil
}

// Child is a started process: a child of the core, and the leader of its own session and process group.
type Child struct {
	// Process must be waited for by the caller.
	Process *os.Process
	// PIDFD is a nonblocking descriptor of the process; nil if the kernel has none.
	PIDFD   *os.File
	release func()
}

// Release must be called once after the process has ended. It kills a process that ends with the core.
func (c *Child) Release() {
	if c.release != nil {
		c.release()
	}
}

// Bury reaps threads of the process that have ended but that the kernel keeps for the core as their tracer. Such a thread keeps a killed process from
// ending, so call Bury while one does not end. The filter cannot forbid PTRACE_TRACEME, because the start itself needs it.
func (c *Child) Bury() {
	directory := fmt.Sprintf("/proc/%d/task", c.Process.Pid)
	threads, err := os.ReadDir(directory)
	if err != nil {
		return // the process has been reaped
	}
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil && tid != c.Process.Pid {
			// The process is not reaped yet, so its thread IDs cannot belong to another child.
			_, _ = unix.Wait4(tid, nil, unix.WALL|unix.WNOHANG, nil)
		}
	}
}

func (h *Host) prepare(p Policy, c Command) (*start, error) {
	s := &start{host: h, policy: p, command: c, confine: !p.privileged(), program: -1}
	if c.Executable == nil {
		return nil, fmt.Errorf("sandbox: %w: no executable", ErrExec)
	}
	if s.confine {
		if err := h.unreadable(p, c.Executable); err != nil {
			return nil, err
		}
		var err error
		if s.places, err = places(p); err != nil {
			return nil, withPart(err, MissingMounts)
		}
		if s.keep, err = setOf(p.Remit.Capabilities); err != nil {
			return nil, failed(MissingCapabilities, "what is granted", err)
		}
		s.keep &= h.held
		if h.can(MissingSeccomp) {
			if s.filter, err = filterFor(p); err != nil {
				return nil, failed(MissingSeccomp, "assemble the filter", err)
			}
		}
		if h.can(MissingLimits) {
			s.limits = limitsOf(p, h.can(MissingProcesses) && c.Group != nil)
		}
	}
	var err error
	if s.input, err = os.Open(os.DevNull); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	highest := int(s.input.Fd())
	for _, file := range []*os.File{c.Stdout, c.Stderr} {
		if file != nil {
			highest = max(highest, int(file.Fd()))
		}
	}
	s.program, err = unix.FcntlInt(c.Executable.Fd(), unix.F_DUPFD_CLOEXEC, highest+spread)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("sandbox: the executable: %w", err)
	}
	return s, nil
}

// unreadable fails if the process could read its executable. The kernel lets only root look into a process that cannot.
func (h *Host) unreadable(p Policy, executable *os.File) error {
	if !h.can(MissingNotDumpable) {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(executable.Fd()), &stat); err != nil {
		return failed(MissingNotDumpable, "the executable", err)
	}
	if stat.Uid == p.UID || stat.Mode&0o004 != 0 || stat.Gid == p.GID && stat.Mode&0o040 != 0 {
		return failed(MissingNotDumpable, "the executable", fmt.Errorf("user %d can read it (mode %04o, user %d)", p.UID, stat.Mode&0o7777, stat.Uid))
	}
	return nil
}

func withPart(err error, part string) error {
	var path *PathError
	if errors.As(err, &path) {
		return err
	}
	return failed(part, "what it may reach", err)
}

func (s *start) close() {
	if s.input != nil {
		_ = s.input.Close()
	}
	if s.program >= 0 {
		_ = unix.Close(s.program)
	}
}
