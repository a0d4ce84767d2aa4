package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// shortGrace is a grace period as the core may give it when the machine shuts down.
const shortGrace = time.Second

func endChecks() []Check {
	return []Check{
		{
			ID:    "lifecycle.stop",
			needs: started(),
			Sentence: fmt.Sprintf("Stop is answered when the role has ended, within the grace period (%s, or the stop_grace of its manifest), and the process ends by itself with status 0 at most %s later: "+
				"the core kills what does not, and what a role had still to write is lost.", graceTime, exitTime),
			run: checkStop,
		},
		{
			ID:       "lifecycle.leftovers",
			needs:    []string{"lifecycle.stop"},
			Sentence: "When the process has ended after a Stop, no process that it started is left: nobody would end it, and it would run beside the role's next instance.",
			run:      checkLeftovers,
		},
		{
			ID:       "lifecycle.stop-twice",
			needs:    []string{"lifecycle.stop"},
			Sentence: "A second Stop while the first one is under way changes nothing: both are answered (or the connection ends with the process), and the process ends with status 0.",
			run:      checkStopTwice,
		},
		{
			ID:       "lifecycle.stop-starting",
			needs:    []string{"lifecycle.stop"},
			Sentence: "Stop ends the process within the grace period, also while the role is starting or has not started yet. A shutdown or a quick change of the configuration must not wait for the start.",
			run:      checkStopStarting,
		},
		{
			ID:    "lifecycle.grace",
			needs: []string{"lifecycle.stop"},
			Sentence: fmt.Sprintf("Stop with a grace period of %s is answered in time: with OK, or with DeadlineExceeded if the role has not ended. The core has other roles to stop.",
				shortGrace),
			run: checkGrace,
		},
		{
			ID:       "lifecycle.sigterm",
			needs:    []string{"lifecycle.stop"},
			Sentence: fmt.Sprintf("SIGTERM ends the process, before Start and after it, within %s, or %s more than the stop_grace of the role's manifest: it is how the core, and the machine, end what does not answer.", graceTime+exitTime, exitTime),
			run:      checkSIGTERM,
		},
		{
			ID:    "lifecycle.kill",
			needs: []string{"lifecycle.stop"},
			Sentence: "After SIGKILL, right after Start or while it works, the role starts again on the data that it left. Machines lose power, so half-written files and stale locks must not " +
				"stop a role.",
			run: checkKill,
		},
		{
			ID:    "lifecycle.cycles",
			needs: []string{"lifecycle.stop"},
			Sentence: fmt.Sprintf("%d times in a row the role starts on the data of its last run, comes as far as the first time, and stops: what adds up on the "+
				"disk, or goes wrong now and then, shows by then.", cycles),
			run: checkCycles,
		},
	}
}

// stopped stops a role normally and waits for its process.
func (i *instance) stopped(ctx context.Context) error {
	if err := i.stop(ctx, i.grace); err != nil {
		return fmt.Errorf("it answers Stop with %w%s", err, i.lastWords())
	}
	return i.exited(ctx)
}

// exited waits for the process to end after a Stop.
func (i *instance) exited(ctx context.Context) error {
	if err := i.awaitEnd(ctx, exitTime); err != nil {
		return fmt.Errorf("after Stop %w", err)
	}
	if i.code != 0 {
		return fmt.Errorf("after Stop its process ends with %s, want status 0%s", i.exit(), i.lastWords())
	}
	return nil
}

// settled starts a role and waits until it works.
func (s *subject) settled(ctx context.Context, of *rolev1.RoleManifest, data string) (*instance, error) {
	i, err := s.start(ctx, of, data)
	if err != nil {
		return nil, err
	}
	return i, i.settle(ctx, of)
}

func checkStop(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		return i.stopped(ctx)
	})
}

func checkLeftovers(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		if err := i.stopped(ctx); err != nil {
			return err
		}
		if left := i.left(); len(left) > 0 {
			return fmt.Errorf("%d processes that it started are left when its own has ended", len(left))
		}
		return nil
	})
}

func checkStopTwice(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		stopping, cancel := context.WithTimeout(ctx, i.grace+exitTime)
		defer cancel()
		// Both calls have begun before a request is sent, and both requests are sent before an answer is awaited: on a busy machine much time may pass between two steps.
		var calls []grpc.ClientStream
		for range 2 {
			call, err := i.conn.NewStream(stopping, &grpc.StreamDesc{}, rolev1.RoleService_Stop_FullMethodName)
			if err != nil {
				return fmt.Errorf("stopped twice at once, it answers %w%s", err, i.lastWords())
			}
			calls = append(calls, call)
		}
		for _, call := range calls {
			// RecvMsg returns why a stream has ended.
			if err := call.SendMsg(stopRequest(i.request.GetInstanceId(), i.grace)); err != nil && !errors.Is(err, io.EOF) && status.Code(err) != codes.Unavailable {
				return fmt.Errorf("stopped twice at once, it answers %w%s", err, i.lastWords())
			}
		}
		for _, call := range calls {
			// The process may end as soon as one of them was answered.
			if err := call.RecvMsg(new(rolev1.StopResponse)); err != nil && status.Code(err) != codes.Unavailable {
				return fmt.Errorf("stopped twice at once, it answers %w%s", err, i.lastWords())
			}
		}
		return i.exited(ctx)
	})
}

func checkStopStarting(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		configuration, err := s.configuration(of)
		if err != nil {
			return err
		}
		for n := range 6 {
			data, err := s.directory()
			if err != nil {
				return err
			}
			p, request, err := s.prepare(ctx, of, data, configuration)
			if err != nil {
				return err
			}
			// Three times while Start is running, three times right after it.
			start := make(chan error, 1)
			go func() { start <- p.callStart(ctx, request) }()
			var startErr error
			if n%2 == 1 {
				startErr = <-start
			}
			stopErr := p.callStop(ctx, request.GetInstanceId(), graceOf(of))
			if n%2 == 0 {
				startErr = <-start
			}
			switch status.Code(startErr) {
			case codes.OK, codes.FailedPrecondition, codes.Unavailable, codes.Canceled:
			default:
				return fmt.Errorf("stopped while it starts, it answers Start with %w%s", startErr, p.lastWords())
			}
			if code := status.Code(stopErr); code != codes.OK && code != codes.Unavailable {
				return fmt.Errorf("stopped while it starts, it answers Stop with %w%s", stopErr, p.lastWords())
			}
			if err := p.awaitEnd(ctx, exitTime); err != nil {
				return fmt.Errorf("stopped while it starts: %w", err)
			}
			if err := s.end(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkGrace(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		began := time.Now()
		// The call itself gets longer, to tell a role that misses the deadline from one that keeps it.
		err = i.stop(ctx, shortGrace)
		took := time.Since(began)
		switch code := status.Code(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case took >= shortGrace+exitTime:
			return fmt.Errorf("given a grace period of %s, it has not answered Stop after %s", shortGrace, took.Round(time.Second))
		case code != codes.OK && code != codes.DeadlineExceeded && code != codes.Unavailable:
			return fmt.Errorf("it answers Stop with %w", err)
		}
		return nil
	})
}

func checkSIGTERM(ctx context.Context, s *subject) (string, error) {
	idle, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	if _, err := idle.describe(ctx); err != nil { // now it serves
		return "", err
	}
	if err := idle.terminated(ctx, graceTime); err != nil {
		return "", fmt.Errorf("before Start: %w", err)
	}
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.settled(ctx, of, "")
		if err != nil {
			return err
		}
		return i.terminated(ctx, i.grace)
	})
}

func (p *process) terminated(ctx context.Context, grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.awaitEnd(ctx, grace+exitTime); err != nil {
		return fmt.Errorf("after SIGTERM %w", err)
	}
	return nil
}

func checkKill(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		data, err := s.directory()
		if err != nil {
			return err
		}
		// Right after Start, and while it works.
		for n := range 4 {
			i, err := s.start(ctx, of, data)
			if err == nil && n%2 == 1 {
				err = i.settle(ctx, of)
			}
			if err != nil && n > 0 {
				err = fmt.Errorf("started on what SIGKILL left: %w", err)
			}
			if err != nil {
				return err
			}
			if err := i.signal(syscall.SIGKILL); err != nil {
				return errors.Join(errors.New("it ended before it was killed"), err)
			}
			if err := s.end(i.process); err != nil {
				return err
			}
		}
		i, err := s.settled(ctx, of, data)
		if err != nil {
			return fmt.Errorf("started on what SIGKILL left: %w", err)
		}
		return i.stopped(ctx)
	})
}

func checkCycles(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		data, err := s.directory()
		if err != nil {
			return err
		}
		for n := range cycles {
			i, err := s.settled(ctx, of, data)
			var cost time.Duration
			if err == nil {
				cost = i.usedTimes()
				err = i.stopped(ctx)
			}
			if err != nil {
				return fmt.Errorf("run %d of %d: %w", n+1, cycles, err)
			}
			if err := s.end(i.process); err != nil {
				return err
			}
			left := contentOf(data)
			left.start = cost
			s.runs[of.GetName()] = append(s.runs[of.GetName()], left)
		}
		return nil
	})
}
