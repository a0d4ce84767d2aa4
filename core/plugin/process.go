package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/sandbox"
)

// command is what to execute, in what sandbox.
type command struct {
	sandbox.Command
	executable *store.Executable
	host       *sandbox.Host
	policy     sandbox.Policy
}

// process is the leader of a process group of its own: a child of the core, or adopted.
type process struct {
	Process
	child *sandbox.Child // nil if it is adopted
	uid   uint32
	fd    *proc.Handle
	// life ends when the process has ended, its group was killed and it was reaped. Only then may state be read.
	life  context.Context
	state *os.ProcessState
	// held ends when the core lets go of the process, and released is closed when it has.
	held     context.Context
	letGo    context.CancelFunc
	released chan struct{}

	mu     sync.Mutex
	reaped bool
}

// pollLife is how often a process is looked at whose pidfd cannot be polled.
const pollLife = 100 * time.Millisecond

// startProcess executes a command. Its goroutine ends with the process; whoever wants it gone waits for life.
//
// A child that was forked while an import wrote the file has it open until it executes its own program, and until then nobody can execute
// the file (ETXTBSY). That is soon over, but nothing tells when: the kernel lets the parent of a fork go on before it closes the child's files, so
// that not even the fork lock says so. The file is tried again for a while.
func startProcess(ctx context.Context, c command, log hclog.Logger) (p *process, err error) {
	err = store.RetryBusy(ctx, func() error {
		p, err = tryProcess(c)
		if errors.Is(err, syscall.ETXTBSY) {
			log.Debug("the executable is open for writing; it is tried again", "path", c.executable.Path())
		}
		return err
	})
	return p, err
}

func tryProcess(c command) (*process, error) {
	// What is executed is what was verified, from here until the kernel holds the file for the process.
	let, err := c.executable.Hold()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExec, err)
	}
	child, err := c.host.Start(c.policy, c.Command)
	let()
	if err != nil {
		return nil, explainExec(err)
	}
	p, end := newProcess(child.Process.Pid, c.policy.UID)
	p.child = child
	// Until it is reaped, below, the PID is the child's, even if it has ended.
	s, err := proc.ReadStat(p.PID)
	if err == nil {
		p.Start = s.Start
		if child.PIDFD == nil {
			p.fd, err = proc.Open(p.PID)
		} else {
			p.fd = proc.NewHandle(p.PID, child.PIDFD)
		}
	}
	if err != nil {
		_ = syscall.Kill(-p.PID, syscall.SIGKILL)
		_, _ = child.Process.Wait()
		child.Release()
		end()
		return nil, fmt.Errorf("%w: %w", ErrExec, err)
	}
	go p.wait(end)
	return p, nil
}

func newProcess(pid int, uid uint32) (p *process, end context.CancelFunc) {
	p = &process{Process: Process{PID: pid}, uid: uid, released: make(chan struct{})}
	p.life, end = context.WithCancel(context.Background())
	p.held, p.letGo = context.WithCancel(context.Background())
	return p, end
}

// explainExec says what is wrong with an executable; where the sandbox could not be made, that is what is wrong.
func explainExec(err error) error {
	if !errors.Is(err, sandbox.ErrExec) {
		return err
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EACCES):
		hint = " (no interpreter is in its sandbox, and no loader: a plugin is a static executable, or its role is granted execute-path for its loader and libraries)"
	case errors.Is(err, syscall.ENOEXEC):
		hint = " (not an executable of this platform)"
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		err = number
	}
	return fmt.Errorf("%w: %w%s", ErrExec, err, hint)
}

func (p *process) wait(end context.CancelFunc) {
	defer close(p.released)
	defer p.letGo()
	defer p.fd.Close()
	err := p.fd.Wait(p.held)
	if err != nil && p.held.Err() != nil {
		return // and life goes on
	}
	defer end()
	if err != nil {
		// Never seen; a thread then waits in place of the poller.
		p.waitOtherwise()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		// Its number may be another's by now, whose group is then not touched either.
		_ = sweep(context.Background(), "the process group of an adopted instance", atOnce, p.member)
		p.reaped = true
		return
	}
	// The dead leader holds the number of its group until it is reaped: whoever is killed here belongs to the group.
	_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	if p.uid == uint32(os.Geteuid()) {
		// The others are dead in a moment, which nothing else waits for: a user that others have too tells later only of what carries the mark.
		_ = sweep(context.Background(), "the process group of an instance", atOnce, p.member)
	}
	p.state, _ = p.child.Process.Wait() // the state says what it was
	p.reaped = true
	p.child.Release()
}

func (p *process) waitOtherwise() {
	if p.child != nil {
		_ = unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil)
		return
	}
	for p.Running() {
		time.Sleep(pollLife)
	}
}

// leave lets go of the process: it runs on, and is not waited for any more.
func (p *process) leave() {
	p.letGo()
	<-p.released
}

// exit is how it ended, which it has.
func (p *process) exit(lines []string) Exit {
	if p.child == nil {
		return Exit{Code: -1, Unknown: true, Lines: lines}
	}
	return exitOf(p.state, lines)
}

// signalGroup signals the process and all of its group. It does nothing once the process has been reaped.
func (p *process) signalGroup(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.child == nil {
		p.signalMembers(signal)
		return
	}
	_ = syscall.Kill(-p.PID, signal)
	if group, err := unix.Getpgid(p.PID); err == nil && group != p.PID {
		_ = syscall.Kill(p.PID, signal) // it has left its own group
	}
	if signal == syscall.SIGKILL {
		go p.bury()
	}
}

// bury helps a process to its end that was killed: one of its threads may have made the core its tracer, and is then kept for the core. Mostly it ends before
// anything has to be done.
func (p *process) bury() {
	for pause := exitMargin / 8; pause < killGrace; pause *= 2 {
		select {
		case <-p.life.Done():
			return
		case <-time.After(pause):
		}
		p.mu.Lock()
		if !p.reaped {
			p.child.Bury()
		}
		p.mu.Unlock()
	}
}
