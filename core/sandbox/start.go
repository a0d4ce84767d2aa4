package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// spread is how far above the others the descriptor of the executable is: those between are free for the copies that are made when a process is forked.
const spread = 32

// firstInherited is the first descriptor that a process would not be given on purpose.
const firstInherited = 3

// start is one process to be started: everything that can be prepared before a thread is confined.
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
	// entered says that the thread is in the control group of the process.
	entered bool
	// inspect is given the process while it is stopped; nil: nothing is.
	inspect func(pid int) error
}

// outcome is what a start came to.
type outcome struct {
	process *os.Process
	pidfd   *os.File
	err     error
}

// Start starts a process in its sandbox. What Missing lists is left out; everything else is enforced, or the process does not run.
//
// The error is a *PathError if the role was granted a path that is not there, a *PartError if a part of the sandbox could not be made, and wraps ErrExec
// if the kernel does not execute the executable.
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
		// From here, since the thread is confined itself by now.
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

// Child is a process that was started: a child of the core and the leader of a session and process group of its own.
type Child struct {
	// Process is to be waited for by whoever started it.
	Process *os.Process
	// PIDFD is a descriptor of the process, nonblocking; nil if the kernel gives none.
	PIDFD   *os.File
	release func()
}

// Release is called once when the process has ended. A process that ends with the core is killed if it has not.
func (c *Child) Release() {
	if c.release != nil {
		c.release()
	}
}

// Bury waits for threads of the process that have ended and that the kernel keeps for the core, without which the process never ends: it is to be called
// while a process that was killed does not end. The start itself needs a child to be able to make its parent its tracer, so that the filter cannot refuse
// that; a thread that does so later is not gone when it is dead.
func (c *Child) Bury() {
	directory := fmt.Sprintf("/proc/%d/task", c.Process.Pid)
	threads, err := os.ReadDir(directory)
	if err != nil {
		return // it has been waited for
	}
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil && tid != c.Process.Pid {
			// No other child can be meant: this one has not been waited for, and so has its threads.
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

// unreadable makes sure that a process cannot read its executable: the kernel then keeps everybody but root from looking into the process.
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
