package role

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// errUnasked is the failure of a role whose Run returned nil too early.
var errUnasked = errors.New("the role ended without being asked to")

// instance is a started role.
type instance struct {
	id     string
	role   Role
	log    hclog.Logger
	host   *Host
	status *statusValue
	// core is nil unless the role ends with its core.
	core *lifeline
	// health and metrics are the answers to CheckHealth and GetMetrics.
	health  shared[struct{}]
	metrics shared[[]byte]
	// done is closed when Run has returned and the SDK's work for it has ended.
	done chan struct{}

	// running is Run's context. serving is the context of calls to the role's services, and ends when Run has returned.
	running, serving       context.Context
	stopRunning, endCalled context.CancelFunc

	mu      sync.Mutex
	stopped bool // Stop was called before Run returned
	ended   bool // Run has returned
}

func newInstance(role Role, request *rolev1.StartRequest, log hclog.Logger) (*instance, error) {
	i := &instance{
		id: request.GetInstanceId(), role: role, log: log, status: newStatus(request), done: make(chan struct{}),
	}
	i.running, i.stopRunning = context.WithCancel(context.Background())
	i.serving, i.endCalled = context.WithCancel(context.Background())
	host, err := newHost(request, i.status, log, i.running.Done())
	if err != nil {
		i.stopRunning()
		i.endCalled()
		return nil, err
	}
	i.host = host
	return i, nil
}

// run runs the role to its end.
func (i *instance) run() {
	defer close(i.done)
	err := i.call()
	i.mu.Lock()
	i.ended = true
	stopped := i.stopped
	i.mu.Unlock()
	i.stopRunning()
	i.endCalled()
	i.host.close()
	if i.core != nil {
		i.core.close()
	}
	switch {
	case !stopped:
		if err == nil {
			err = errUnasked
		}
		i.log.Error("the role failed", "error", err)
		i.status.enter(rolev1.RoleState_ROLE_STATE_FAILED, err.Error())
	case err != nil && !errors.Is(err, context.Canceled):
		i.log.Warn("the role stopped, with an error", "error", err)
		i.status.enter(rolev1.RoleState_ROLE_STATE_STOPPED, err.Error())
	default:
		i.log.Debug("the role stopped")
		i.status.enter(rolev1.RoleState_ROLE_STATE_STOPPED, "")
	}
}

// call calls Run. It turns a panic and a runtime.Goexit into an error.
func (i *instance) call() error {
	result := make(chan error, 1)
	guard(i.log, "the role", func() error { return i.role.Run(i.running, i.host) }, func(err error) { result <- err })
	return <-result
}

// stop asks Run to return and waits for it for the grace period. It reports whether Run has returned.
func (i *instance) stop(grace time.Duration, reason StopReason) bool {
	i.mu.Lock()
	if !i.ended && !i.stopped {
		i.stopped = true
		i.host.stopped.Store(int32(reason))
		i.status.enter(rolev1.RoleState_ROLE_STATE_STOPPING, "")
	}
	i.mu.Unlock()
	i.stopRunning()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-i.done:
		return true
	case <-timer.C:
		i.status.enter(rolev1.RoleState_ROLE_STATE_FAILED, fmt.Sprintf("the role did not stop within its grace period of %s", grace))
		i.endCalled()
		return false
	}
}

// whileServing returns a context that also ends when the role's services end.
func (i *instance) whileServing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(i.serving, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}
