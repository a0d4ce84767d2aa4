package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

// onThread runs a function on its own thread, never the process's main thread, and ends the thread afterwards. So no other goroutine ever runs on a
// changed thread.
//
// The main thread is left alone because its entries in /proc stand for the process, and because it cannot end. The Go runtime does not clone new
// threads from a locked one: it has a clean thread for that.
func onThread(do func()) { acquire(do, nil) }

func acquire(do func(), got chan<- struct{}) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine waits here, nobody else gets the main thread.
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
		// The goroutine ends locked, which ends the thread.
	}()
}

// run confines the calling thread, starts the process from it, and holds it before its first instruction until everything else is done.
func (s *start) run(stopped chan<- int, proceed <-chan error) (*os.Process, *os.File, error) {
	// A thread that lives as long as its child must stay out of the child's group, since it is the core's.
	s.entered = s.command.Group != nil && !s.policy.EndsWithCore
	if s.entered {
		if err := s.command.Group.Enter(); err != nil {
			return nil, nil, failed("cgroup", "enter it", err)
		}
	}
	if s.confine {
		if err := s.confineThread(); err != nil {
			return nil, nil, err
		}
	}
	// Roles do not inherit what the core itself was started with.
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

// confineThread confines the calling thread step by step. The order matters: each step needs something that a later one removes.
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
	// Nobody can join a process group of another session, so the process gets its own session.
	attributes := &syscall.SysProcAttr{Setsid: true, Ptrace: true}
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
	// A second pidfd, because os.Process needs a blocking one.
	pidfd, err := unix.PidfdOpen(process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return process, nil, nil
	}
	return process, os.NewFile(uintptr(pidfd), "pidfd"), nil
}

// awaitStop waits until a child has executed its program and stops before the first instruction.
func awaitStop(pid int) error {
	var status unix.WaitStatus
	_, err := eintr.Retry(func() (int, error) { return unix.Wait4(pid, &status, unix.WALL, nil) })
	if err != nil {
		return fmt.Errorf("sandbox: wait for the process to execute: %w", err)
	}
	if !status.Stopped() {
		return fmt.Errorf("sandbox: %w: the process ended before its first instruction (%s)", ErrExec, ending(status))
	}
	return nil
}

func ending(status unix.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("status %d", status.ExitStatus())
}

// whileStopped does what the confined thread cannot do to the child.
func (s *start) whileStopped(pid int) error {
	if group := s.command.Group; group != nil {
		add := group.Add
		if s.entered {
			add = group.Complete
		}
		if err := add(pid); err != nil {
			return failed("cgroup", "add the process", err)
		}
	}
	if s.inspect != nil {
		if err := s.inspect(pid); err != nil {
			return err
		}
	}
	return failed(MissingLimits, "raise its oom_score_adj", raiseOOMScore(pid))
}
