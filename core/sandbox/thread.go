package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// onThread runs a function on a thread of its own, which is never the main thread of the process, and ends the thread when the function returns:
// whatever was done to it, no other goroutine runs on it, neither meanwhile nor later.
//
// The main thread is left alone since its entries in /proc are those of the process, and since it cannot end. New threads of the Go runtime do not
// come from such a thread: the runtime takes a clean one to make them.
func onThread(do func()) { acquire(do, nil) }

func acquire(do func(), got chan<- struct{}) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine waits here, nobody else can be given the main thread.
			elsewhere := make(chan struct{})
			acquire(do, elsewhere)
			<-elsewhere
			runtime.UnlockOSThread()
			return
		}
		if got != nil {
			close(got)
		}
		do()
		// It is still locked, which ends the thread.
	}()
}

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

// Child is a process that was started: a child of the core and the leader of a process group of its own.
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

// run confines the calling thread, starts the process from it, and has it wait before its first instruction until everything else is done.
func (s *start) run(stopped chan<- int, proceed <-chan error) (*os.Process, *os.File, error) {
	if s.confine {
		if err := s.confineThread(); err != nil {
			return nil, nil, err
		}
	}
	// Whatever the core was itself started with does not go on to roles.
	_ = unix.CloseRange(firstInherited, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	process, pidfd, err := s.fork()
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: %w: %s: %w", ErrExec, s.command.Name, err)
	}
	err = awaitStop(process.Pid)
	if err == nil {
		stopped <- process.Pid
		err = <-proceed
	}
	if err == nil && len(s.limits) > 0 {
		err = failed(MissingLimits, "set them", bound(process.Pid, s.limits, s.policy.UID, s.policy.GID))
	}
	if err == nil {
		err = failed(MissingLimits, "let the process run", unix.PtraceDetach(process.Pid))
	}
	if err != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		if pidfd != nil {
			_ = pidfd.Close()
		}
		return nil, nil, err
	}
	return process, pidfd, nil
}

// confineThread takes from the calling thread, step by step, what its child is not to have. The order matters: each step needs what a later one takes.
func (s *start) confineThread() error {
	h, p := s.host, s.policy
	if h.can(MissingIPC) {
		if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
			return failed(MissingIPC, "an IPC namespace of its own", err)
		}
	}
	if h.can(MissingMounts) {
		if err := view(s.places, p.UID, p.GID); err != nil {
			return failed(MissingMounts, "a view of its own", err)
		}
	}
	if h.can(MissingNoNewPrivileges) {
		if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
			return failed(MissingNoNewPrivileges, "set it", err)
		}
	}
	if h.can(MissingLandlockFiles) {
		if err := landlock(h.landlock, s.places, h.can(MissingMounts), s.program, p.Remit); err != nil {
			return failed(MissingLandlockFiles, "confine it", err)
		}
	}
	if h.can(MissingCapabilities) {
		if err := drop(s.keep, h.lastCapability, h.root); err != nil {
			return failed(MissingCapabilities, "drop them", err)
		}
	}
	if s.filter != nil {
		if err := load(s.filter); err != nil {
			return failed(MissingSeccomp, "load the filter", err)
		}
	}
	return nil
}

// fork starts the process, stopped before its first instruction.
func (s *start) fork() (*os.Process, *os.File, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true, Ptrace: true}
	if s.confine {
		if s.host.can(MissingOwnUID) {
			attributes.Credential = &syscall.Credential{Uid: s.policy.UID, Gid: s.policy.GID, Groups: []uint32{}}
		}
		attributes.AmbientCaps = s.keep.numbers()
	}
	if s.policy.EndsWithCore {
		attributes.Pdeathsig = syscall.SIGKILL
	}
	process, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", s.program), []string{s.command.Name}, &os.ProcAttr{
		Dir: "/", Env: s.command.Env, Files: []*os.File{s.input, s.command.Stdout, s.command.Stderr}, Sys: attributes,
	})
	if err != nil {
		var of *os.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, nil, err
	}
	// One of its own: waiting for the process by that of os.Process must block.
	pidfd, err := unix.PidfdOpen(process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return process, nil, nil
	}
	return process, os.NewFile(uintptr(pidfd), "pidfd"), nil
}

// awaitStop waits until a child has executed its program and stands before the first instruction.
func awaitStop(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("sandbox: wait for the process to be executed: %w", err)
		}
		if status.Stopped() {
			return nil
		}
		return fmt.Errorf("sandbox: %w: the process ended before its first instruction (%s)", ErrExec, ending(status))
	}
}

func ending(status unix.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("status %d", status.ExitStatus())
}

// whileStopped does to the child what the confined thread cannot.
func (s *start) whileStopped(pid int) error {
	if s.command.Group != nil {
		if err := s.command.Group.Add(pid); err != nil {
			return failed("cgroup", "take the process in", err)
		}
	}
	if s.inspect != nil {
		if err := s.inspect(pid); err != nil {
			return err
		}
	}
	return failed(MissingLimits, "have it end before the core", expendable(pid))
}
