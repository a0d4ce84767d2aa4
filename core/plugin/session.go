package plugin

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/sandbox"
)

// session is a plugin's process with its log and its connection: what an instance and the asking for a manifest have in common.
type session struct {
	launcher *Launcher
	remit    *Remit
	spec     Spec // of one that was adopted
	process  *process
	output   *output.Stdout
	socket   string
	launched time.Time
	log      *output.Stderr
	conn     *grpc.ClientConn
	// expected says that the process was to end: what it wrote last need not be told.
	expected bool
	// executable is held while it runs, so that it is not collected. It is nil of one that was adopted: the node spares the executable of every instance that is shown.
	executable *store.Executable
	// group is the control group; nil if there is none. starved says that a process of it ran out of memory.
	group   *cgroup.Group
	starved bool
	// starvedBefore is how many did before the instance was adopted.
	starvedBefore uint64
}

// open launches the executable of a prepared remit, records the process and connects to it. On an error the process is gone and what it last wrote
// is returned; what Prepare made is still there. The executable is closed in any case, when the session ends. spec is for a core that adopts the
// instance; nil: none is to. environment comes to what every process has.
func (l *Launcher) open(ctx context.Context, remit *Remit, executable *store.Executable, digest string, spec *recordedSpec, environment ...string) (opened *session, lines []string, err error) {
	s := &session{launcher: l, remit: remit, executable: executable, launched: time.Now()}
	defer func() {
		if opened == nil {
			_ = executable.Close()
		}
	}()
	stderr, err := s.followStderr()
	if err != nil {
		return nil, nil, &nodeError{err}
	}
	defer func() { _ = stderr.Close() }()
	if err := s.makeGroup(); err != nil {
		s.log.Finish()
		return nil, nil, &nodeError{err}
	}
	s.process, s.output, s.socket, err = handshake(ctx, l.patience.Handshake, l.log, command{executable: executable, host: l.sandbox, policy: l.policy(remit), Command: sandbox.Command{
		Executable: executable.File(), Name: remit.Name, Group: s.group, Stderr: stderr,
		// go-plugin's own variables come to these, and nothing else.
		Env: append([]string{InstanceVariable + "=" + remit.InstanceID, "GOTRACEBACK=single"}, environment...),
	}}, l.outputs, l.runtimeDir(remit.Name), l.pluginDir())
	if err != nil {
		err = errors.Join(s.explain(err), s.sweep(ctx))
		s.log.Finish()
		s.log.Tell()
		return nil, s.log.Lines(), err
	}
	remit.SetProcess(s.process.Process)
	err = l.writeRecord(remit.Name, recordOf(remit, digest, s.process.Process, s.socket, s.launched, spec))
	if err == nil {
		err = s.whileAlive(ctx, func(ctx context.Context) (err error) {
			s.conn, err = l.dial(ctx, s.socket, listenerOf(s.process, remit.UID))
			return err
		})
	}
	if err != nil {
		err = errors.Join(err, s.end(ctx))
		return nil, s.log.Lines(), err
	}
	return s, nil, nil
}

// whileAlive runs a step with a context that ends with the process, and says so if the process ended meanwhile.
func (s *session) whileAlive(ctx context.Context, step func(context.Context) error) error {
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.process.life, func() { cancel(ErrExited) })
	defer stop()
	err := step(during)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// The connection breaks a moment before the kernel tells of the end.
	select {
	case <-s.process.life.Done():
		return &exitedError{s.exit(nil)}
	case <-time.After(exitMargin):
		return err
	}
}

// why is the error of a session that was ended for it. If the connection broke since the process had ended by itself, that is why, however much later its end
// was seen: what was ended by its core has died by SIGKILL.
func (s *session) why(err error) error {
	var broken *brokenError
	if !errors.As(err, &broken) || s.process.child == nil || s.process.life.Err() == nil {
		return err
	}
	if exit := s.exit(nil); exit.Signal != syscall.SIGKILL || exit.OutOfMemory {
		return &exitedError{exit}
	}
	return err
}

// exitMargin is how much later the end of a process may be seen than the end of its connection.
const exitMargin = 200 * time.Millisecond

// end kills what is left of the session and returns when nothing is. It is called once, whether the process lives or not.
func (s *session) end(ctx context.Context) error {
	s.process.signalGroup(syscall.SIGKILL)
	var err error
	select {
	case <-s.process.life.Done():
		err = s.sweep(ctx)
	case <-time.After(killGrace):
		err = &SurvivorsError{What: "instance " + s.remit.InstanceID, PIDs: []int{s.process.PID}}
	}
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	s.output.Close()
	s.log.Finish()
	if !s.expected {
		s.log.Tell()
	}
	return errors.Join(err, s.letGo())
}

// leave lets go of the process, which runs on.
func (s *session) leave() error {
	s.process.leave()
	err := s.conn.Close()
	s.output.Close()
	s.log.Finish()
	return errors.Join(err, s.letGo())
}

// letGo closes the executable, if this core holds it.
func (s *session) letGo() error {
	if s.executable == nil {
		return nil
	}
	return s.executable.Close()
}

// roleLog is the core's log, of an instance.
func (l *Launcher) roleLog(role, instanceID string) hclog.Logger {
	return l.log.Named("role").With("role", role, "instance", instanceID)
}

// followStderr makes the standard error of an instance that is to be launched and follows it. The caller closes it once the process has it.
func (s *session) followStderr() (write *os.File, err error) {
	l, remit := s.launcher, s.remit
	s.log, write, err = l.outputs.MakeStderr(l.roleLog(remit.Role, remit.InstanceID), remit.Role, remit.Name, remit.InstanceID)
	return write, err
}

// sweep kills what left the process group: what is in the control group, and unless nothing can have left that, as root whatever runs as the
// instance's user, otherwise what carries its ID in the environment.
func (s *session) sweep(ctx context.Context) error {
	killed := s.killGroup()
	if killed == nil && s.fenced() && s.removeGroup() == nil {
		return nil // it was empty, or it would not go; to look at every process of the machine takes 10 ms
	}
	match := func(pid int) bool { return instanceOf(pid) == s.remit.InstanceID }
	if !s.remit.SharedUID {
		match = func(pid int) bool { return proc.HasUID(pid, func(uid uint32) bool { return uid == s.remit.UID }) }
	}
	return errors.Join(killed, sweep(ctx, "instance "+s.remit.InstanceID, atOnce, match), s.removeGroup())
}
