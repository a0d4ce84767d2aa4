package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// steadyTime is how long a stream of the host is open before it counts as followed.
	steadyTime = time.Second
	// returnTime is how long a role may take to find the next core.
	returnTime = 30 * time.Second
)

func restartChecks() []Check {
	absent := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, outlivesCore, "every role ends with its core")
	}
	return []Check{
		{
			ID:    "restart.lives",
			needs: started("lifecycle.stop"),
			Sentence: fmt.Sprintf("When the core goes away (the host socket is gone, and the plugin connection is cut), a role lives on, and has not failed, for at least the %s that are watched: "+
				"a core is restarted and upgraded under the roles, and that must cost the cluster nothing. It is not asked of a role that ends with its core.", spinTime),
			absent: absent,
			run:    ofCoreLife(func(l *coreLife) error { return l.ended }),
		},
		{
			ID:    "restart.patience",
			needs: []string{"restart.lives"},
			Sentence: fmt.Sprintf("While the core is away, a role uses less than half of a processor and logs less than %d KiB a second: a core that starts needs the node for other things.",
				maxSpinLog>>10),
			absent: absent,
			run:    ofCoreLife(func(l *coreLife) error { return l.spun }),
		},
		{
			ID:    "restart.status",
			needs: []string{"restart.lives"},
			Sentence: fmt.Sprintf("The next core finds the role at its old socket: Watch states within %s the instance, the role and the generation of the one Start that there was, and a role that was Ready or "+
				"Degraded is so within %s. The core ends a process that reports another instance.", statusTime, returnTime),
			absent: absent,
			run:    ofCoreLife(func(l *coreLife) error { return l.stranger }),
		},
		{
			ID:    "restart.follows",
			needs: []string{"restart.status"},
			Sentence: fmt.Sprintf("Every stream that the role had open (membership, directory, network, store, trust) is open again within %s of the start of the next core. Otherwise the role works with "+
				"stale information.", returnTime),
			absent: absent,
			run:    ofCoreLife(func(l *coreLife) error { return l.deaf }),
		},
		{
			ID:       "restart.stop",
			needs:    []string{"restart.status"},
			Sentence: "Adopted by the next core, a role stops as it does under the first: Stop is answered within the grace period, and the process ends by itself with status 0.",
			absent:   absent,
			run:      ofCoreLife(func(l *coreLife) error { return l.stuck }),
		},
	}
}

func outlivesCore(of *rolev1.RoleManifest) bool { return !of.GetEndsWithCore() }

// coreLife is what was observed of a role whose core went away and that was adopted by another one.
type coreLife struct {
	// err is why nothing was observed.
	err error
	// ended: the role ended. spun: it did too much of something. stranger: it reported another identity. deaf: it did not follow something again.
	// stuck: it did not stop.
	ended, spun, stranger, deaf, stuck error
	// streams are the methods that it followed.
	streams []string
}

// ofCoreLife makes a check that judges a part of every role's coreLife.
func ofCoreLife(part func(*coreLife) error) func(context.Context, *subject) (string, error) {
	return func(ctx context.Context, s *subject) (string, error) {
		var streams []string
		err := s.eachRole(func(of *rolev1.RoleManifest) error {
			if !outlivesCore(of) {
				return nil
			}
			life := s.coreLives[of.GetName()]
			if life == nil {
				life = s.liveCore(ctx, of)
				s.coreLives[of.GetName()] = life
			}
			streams = append(streams, life.streams...)
			return errors.Join(life.err, part(life), s.endAll())
		})
		slices.Sort(streams)
		if len(streams) == 0 {
			return "it follows nothing of its host", err
		}
		return "it follows " + strings.Join(slices.Compact(streams), ", "), err
	}
}

// liveCore takes the core away from a role and lets another one adopt it.
func (s *subject) liveCore(ctx context.Context, of *rolev1.RoleManifest) *coreLife {
	i, err := s.settled(ctx, of, "")
	if err != nil {
		return &coreLife{err: err}
	}
	host := s.standIn(of)
	// The role may open its streams only once it is Ready.
	err = i.livesFor(ctx, steadyTime/2)
	first := host.Streams()
	if err := errors.Join(err, i.livesFor(ctx, steadyTime)); err != nil {
		return &coreLife{err: err}
	}
	before, _ := i.status.Get()
	life := &coreLife{}
	for method, open := range host.Streams() {
		if open > 0 && first[method] > 0 {
			life.streams = append(life.streams, method)
		}
	}
	s.dismiss(i, host)
	life.spun = i.spins(ctx, host)
	if life.ended = i.lives(); life.ended != nil {
		life.ended = fmt.Errorf("while the core is away, %w", life.ended)
	}
	if err := host.Serve(); err != nil {
		return &coreLife{err: err}
	}
	if life.ended != nil {
		return life
	}
	adopted, err := s.adopt(i)
	if err != nil {
		return &coreLife{err: err}
	}
	if life.stranger = adopted.known(ctx, before); life.stranger == nil {
		life.deaf = follows(ctx, host, life.streams)
	}
	switch {
	case (life.stranger != nil || life.deaf != nil) && adopted.gone(ctx):
		// On a busy machine it may take until now to end.
		life.ended, life.stranger, life.deaf = fmt.Errorf("after the core went away, %w", adopted.lives()), nil, nil
	case life.stranger == nil:
		life.stuck = adopted.stopped(ctx)
	}
	return life
}

// gone reports whether a role's process has ended by itself. The end of its status stream may be seen before that of the process.
func (i *instance) gone(ctx context.Context) bool {
	select {
	case <-i.watch:
		return i.awaitEnd(ctx, exitTime) == nil
	default:
		return !i.alive()
	}
}

// dismiss ends the core: nobody calls the role, and nobody answers its calls.
func (s *subject) dismiss(i *instance, host *roletest.Host) {
	host.Stop()
	i.cancel()
	<-i.watch
	_ = i.conn.Close()
}

// adopt connects to a role's process like the next core.
func (s *subject) adopt(i *instance) (*instance, error) {
	if err := i.connect(i.line); err != nil {
		return nil, err
	}
	return s.follow(i.process, i.request), nil
}

// known judges the status of an adopted role.
func (i *instance) known(ctx context.Context, before *rolev1.WatchResponse) error {
	now, err := i.await(ctx, statusTime, func(*rolev1.WatchResponse) bool { return true })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("adopted, it states no status within %s%s", statusTime, i.lastWords())
	}
	if err := judgeStatus(now, i.request); err != nil {
		return fmt.Errorf("adopted, %w", err)
	}
	if !works(before) {
		return i.lives()
	}
	if now, err := i.await(ctx, returnTime, func(now *rolev1.WatchResponse) bool { return works(now) || failed(now) }); err != nil || failed(now) {
		now, _ = i.status.Get()
		return errors.Join(ctx.Err(), fmt.Errorf("adopted, it is %s (%s), and was %s before%s", now.GetState(), now.GetReason(), before.GetState(), i.lastWords()))
	}
	return nil
}

// follows polls until the streams of a host are open. There is no notification.
func follows(ctx context.Context, host *roletest.Host, streams []string) error {
	missing := func() []string {
		open := host.Streams()
		return slices.DeleteFunc(slices.Clone(streams), func(method string) bool { return open[method] > 0 })
	}
	deadline := time.Now().Add(returnTime)
	for len(missing()) > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it has not called %s again %s after the next core's start", strings.Join(missing(), ", "), returnTime)
		}
	}
	return nil
}
