package conformance

import (
	"context"
	"errors"
	"time"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// idleLife is what was observed of a role that was started, settled, and had nothing to do for idleTime.
type idleLife struct {
	// err is why nothing was observed.
	err error
	// start is the processor time until it settled, ready the duration.
	start, ready time.Duration
	// had and wanted are the processor time that it used and wanted while idle (processorTime), seconds the duration, all of the last look.
	had, wanted time.Duration
	seconds     float64
	holding     holding
	// logged is how many bytes it had logged by the end of the first look.
	logged    int64
	listeners []listening
	written   []string
	// status is its last status, request its start request.
	status  *rolev1.WatchResponse
	request *rolev1.StartRequest
}

// restless reports whether the role used more processor time than an idle role may.
func (l *idleLife) restless() bool {
	return l.wanted.Seconds() > maxIdleShare*l.seconds && l.had.Seconds() > minIdleShare*l.seconds
}

// idle returns the idle life of a role, which is observed once for all checks.
func (s *subject) idle(ctx context.Context, of *rolev1.RoleManifest) *idleLife {
	life := s.idleLives[of.GetName()]
	if life == nil {
		life = s.liveIdle(ctx, of)
		s.idleLives[of.GetName()] = life
	}
	return life
}

func (s *subject) liveIdle(ctx context.Context, of *rolev1.RoleManifest) *idleLife {
	began := time.Now()
	i, err := s.settled(ctx, of, "")
	if err != nil {
		return &idleLife{err: err}
	}
	if needsOnlyStore(of) && s.config.Store != nil {
		// store.ready judges whether it takes too long.
		_, _ = i.await(ctx, readyTime, func(now *rolev1.WatchResponse) bool { return works(now) || blocked(now) || failed(now) })
	}
	life := &idleLife{ready: time.Since(began), request: i.request}
	life.start = i.usedTimes()
	for look := range looks {
		hadBefore, wantedBefore := i.processorTimes()
		began = time.Now()
		if err := i.livesFor(ctx, idleTime); err != nil {
			return &idleLife{err: err}
		}
		had, wanted := i.processorTimes()
		life.seconds = time.Since(began).Seconds()
		life.had, life.wanted = had-hadBefore, wanted-wantedBefore
		if look == 0 { // maxIdle limits the log of one look
			_, life.logged = i.logged()
		}
		if !life.restless() {
			break
		}
	}
	life.holding = i.holdingOf()
	life.listeners, life.written = i.listeners(), i.written()
	life.status, _ = i.status.Get()
	s.figure(of, "start", life.start.Seconds(), "s of a processor")
	if works(life.status) {
		s.figure(of, "ready", life.ready.Seconds(), "s")
	}
	s.figure(of, "memory", float64(life.holding.memory)/(1<<20), "MiB")
	s.figure(of, "idle", 100*life.had.Seconds()/life.seconds, "% of a processor")
	s.figure(of, "log", float64(life.logged)/(1<<10), "KiB")
	return life
}

// processorTimes sums processorTime over the process and its descendants.
func (p *process) processorTimes() (had, wanted time.Duration) {
	for _, pid := range p.family() {
		h, w := processorTime(pid)
		had, wanted = had+h, wanted+w
	}
	return had, wanted
}

// eachIdle judges the idle life of every role.
func (s *subject) eachIdle(ctx context.Context, judge func(*rolev1.RoleManifest, *idleLife) error) error {
	return s.eachRole(func(of *rolev1.RoleManifest) error {
		life := s.idle(ctx, of)
		err := life.err
		if err == nil {
			err = judge(of, life)
		}
		return errors.Join(err, s.endAll())
	})
}
