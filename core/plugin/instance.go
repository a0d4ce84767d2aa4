package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// DefaultGrace is how long a role may take to stop whose manifest does not say.
	DefaultGrace = limits.StopGrace
	// exitGrace is how long the process may take to end after the role has.
	exitGrace = 2 * time.Second
)

// Instance is a role that runs on this node: one process. It ends when its process ends, whether it was stopped or not, and then
// cleans up after itself.
type Instance struct {
	session    *session
	spec       Spec
	generation uint64
	status     *event.Value[*rolev1.WatchResponse]
	requested  atomic.Bool
	done       chan struct{}
	// leaving is closed by Leave, and left when nothing is held any more.
	leaving, left chan struct{}
	leave         sync.Once
	// The next are set before done is closed.
	exit     Exit
	problems error
}

// newInstance takes over a session with a role that was started for a spec. first is the status that it stated already, or nil.
func newInstance(s *session, spec Spec, first *rolev1.WatchResponse) *Instance {
	i := &Instance{
		session: s, spec: spec, generation: spec.Generation, done: make(chan struct{}), leaving: make(chan struct{}), left: make(chan struct{}),
	}
	if first == nil {
		first = i.statusWith(rolev1.RoleState_ROLE_STATE_STARTING, "")
	}
	i.status = event.New(first)
	go i.supervise()
	return i
}

// Spec is what the instance was launched for.
func (i *Instance) Spec() Spec { return i.spec }

// Launched is when the instance was launched.
func (i *Instance) Launched() time.Time { return i.session.launched }

// Remit is who the instance is.
func (i *Instance) Remit() *Remit { return i.session.remit }

// Process is the instance's process.
func (i *Instance) Process() Process { return i.session.process.Process }

// Conn is the plugin connection. It is closed when the process has ended.
func (i *Instance) Conn() *grpc.ClientConn { return i.session.conn }

// Status is the role's status as it last stated it; Starting before it did. What it says has been checked: names and sizes are within what the
// protocol allows and texts hold no control characters. A role that breaks the protocol, or does not state its status any more, is
// Failed. It stays as it is when the process ends.
func (i *Instance) Status() *event.Value[*rolev1.WatchResponse] { return i.status }

// Done is closed when the process has ended, nothing of the instance runs any more, and its directories and record are gone.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Exit is how the process ended. It is to be asked after Done only.
func (i *Instance) Exit() Exit {
	<-i.done
	return i.exit
}

// supervise owns everything of the instance: it returns when the process has ended and all is clean, or when the instance is left.
func (i *Instance) supervise() {
	s := i.session
	watching, end := context.WithCancel(context.Background())
	defer end()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		i.watch(watching)
	}()
	select {
	case <-s.process.life.Done():
	case <-i.leaving:
		end()
		<-watched
		if err := s.leave(); err != nil {
			s.launcher.log.Warn("letting go of an instance", "instance", s.remit.InstanceID, "error", err)
		}
		close(i.left)
		return
	}
	defer close(i.left)
	defer close(i.done)
	// The stream ends with the process, unless somebody else has the connection.
	select {
	case <-watched:
	case <-time.After(exitMargin):
		end()
		<-watched
	}
	s.expected = i.requested.Load()
	i.problems = s.end(context.Background())
	i.exit = s.exit(s.log.Lines())
	i.exit.Requested = i.requested.Load()
	if i.problems == nil {
		i.problems = s.launcher.Discard(s.remit)
	}
	if i.problems != nil {
		// The record stays: the next core tries again.
		s.launcher.log.Error("cleaning up after an instance", "instance", s.remit.InstanceID, "error", i.problems)
	}
}

// Leave lets go of the instance without ending it: it runs on, and the next core adopts it. It returns when nothing of it is held any more. Its
// connection is closed then; Done is not, and nothing else may be called. To leave an instance that has ended is no error.
func (i *Instance) Leave() {
	i.leave.Do(func() { close(i.leaving) })
	<-i.left
}

// CheckHealth asks the role whether it is able to work, and returns nil if it is: also if it does not know the question, since it has answered.
// The error of a role that is not well is its reason, fit for people. It waits until the context ends.
func (i *Instance) CheckHealth(ctx context.Context) error {
	_, err := rolev1.NewRoleServiceClient(i.session.conn).CheckHealth(ctx, &rolev1.CheckHealthRequest{}, bounded())
	switch {
	case err == nil || status.Code(err) == codes.Unimplemented:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ranOut(ctx, err):
		return context.DeadlineExceeded
	}
	answer := status.Convert(err)
	reason := limits.Cut(limits.Clean(limits.Cut(answer.Message(), limits.Reason)), limits.Reason)
	return errors.New(cmp.Or(reason, answer.Code().String()))
}

// ranOut reports whether a call failed because its time is over, or about to be. The role's server knows the deadline as well, and ends the call by its own
// clock a moment before the core does: that is no answer.
func ranOut(ctx context.Context, err error) bool {
	code := status.Code(err)
	deadline, ok := ctx.Deadline()
	return (code == codes.Canceled || code == codes.DeadlineExceeded) && ok && time.Until(deadline) < exitMargin
}

// Stop ends the instance: it asks the role, which has the grace period (its own, if that is not positive: see StopGrace), then sends SIGTERM to the
// process group, and SIGKILL 5 s later. When the context ends it does not wait any longer but kills at once. It returns when Done is closed; a
// *SurvivorsError says that the process did not end all the same. Stopping an instance that has ended is no error.
func (i *Instance) Stop(ctx context.Context, grace time.Duration) error {
	return i.StopWith(ctx, grace, rolev1.StopReason_STOP_REASON_UNSPECIFIED)
}

// StopWith is Stop, and tells the role why: what it leaves on the machine may depend on it.
func (i *Instance) StopWith(ctx context.Context, grace time.Duration, reason rolev1.StopReason) error {
	if grace <= 0 {
		grace = i.session.remit.StopGrace(DefaultGrace)
	}
	i.requested.Store(true)
	s := i.session
	if !i.ask(ctx, grace, reason) {
		s.process.signalGroup(syscall.SIGTERM)
		if !i.ended(ctx, termGrace) {
			s.launcher.log.Warn("the instance does not stop and is killed", "instance", s.remit.InstanceID)
			s.process.signalGroup(syscall.SIGKILL)
		}
	}
	// What is left is the kernel's work and the cleaning up, which bounds itself.
	select {
	case <-i.done:
		return i.problems
	case <-time.After(2 * killGrace):
		return &SurvivorsError{What: "instance " + s.remit.InstanceID, PIDs: []int{s.process.PID}}
	}
}

// ask has the role stop, and reports whether the process has ended.
func (i *Instance) ask(ctx context.Context, grace time.Duration, reason rolev1.StopReason) bool {
	asking, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_, err := rolev1.NewRoleServiceClient(i.session.conn).Stop(asking, &rolev1.StopRequest{
		InstanceId: i.session.remit.InstanceID,
		Grace:      durationpb.New(grace),
		Reason:     reason,
	})
	if err != nil {
		return i.ended(ctx, exitMargin)
	}
	return i.ended(ctx, exitGrace)
}

// ended waits for the end of the process.
func (i *Instance) ended(ctx context.Context, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-i.session.process.life.Done():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return i.session.process.life.Err() != nil
}

// String is the instance's ID and process.
func (i *Instance) String() string {
	return fmt.Sprintf("%s (process %d)", i.session.remit.InstanceID, i.session.process.PID)
}
