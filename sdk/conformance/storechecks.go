package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// awayTime is how long the store is away for a role that reports that at once.
	awayTime = 4 * time.Second
	// toldTime is how long a role may take to report that the store is away, backTime how long until it has recovered.
	toldTime = 20 * time.Second
	backTime = 30 * time.Second
	// fullTime is how long a role is left alone with a full store: long enough for a role that writes every second.
	fullTime = 3 * time.Second
	// leftLease is the longest lifetime of a lease that a stopped role may leave.
	leftLease = 30 * time.Second
)

func storeChecks() []Check {
	absent := func(manifest *rolev1.Manifest) string {
		return noneOf(manifest, usesStore, "no role has a ConsensusUser")
	}
	// A role that also waits for something else cannot be observed.
	absentReady := func(manifest *rolev1.Manifest) string {
		if why := absent(manifest); why != "" {
			return why
		}
		return noneOf(manifest, needsOnlyStore, "every role with a ConsensusUser has capabilities, or requirements beyond "+consensusCapability+", and may wait for them")
	}
	checks := []Check{
		{
			ID:    "store.ready",
			needs: []string{"lifecycle.status"},
			Sentence: fmt.Sprintf("A role with a ConsensusUser that waits for nothing else is Ready, or Degraded, within %s of its start when the store is open to it: what requires it is held back until then.",
				readyTime),
			absent: absentReady,
			run:    checkStoreReady,
		},
		{
			ID: "store.own-keys",
			Sentence: "etcd refuses no request of the role. The role uses only keys below its own prefix, and only the calls that a ConsensusUser may make. Every refused request is reported to the " +
				"owner.",
			absent: absent,
			run:    checkOwnKeys,
		},
		{
			ID: "store.waits",
			Sentence: fmt.Sprintf("Started while the store is not open yet, a role waits for it: it lives on, has not failed, and is Ready or Degraded within %s of the store's opening; "+
				"after a node's start the store takes its time, and a role that gives up uses up its restarts.", backTime),
			absent: absent,
			run:    checkStoreWaits,
		},
		{
			ID: "store.away",
			Sentence: "While the store is away, a role lives on, and has not failed: a new process would not bring it back, and all roles of a cluster would be restarted with every " +
				"restart of its store.",
			absent: absent,
			run:    ofStoreLife(func(l *storeLife) error { return l.ended }),
		},
		{
			ID:    "store.told",
			needs: []string{"store.away"},
			Sentence: fmt.Sprintf("A role that is Ready says within %s that the store is away: it is Degraded, with a reason, or Starting again. Who looks at the cluster would else look for the fault elsewhere.",
				toldTime),
			absent: absentReady,
			run:    ofStoreLife(func(l *storeLife) error { return l.untold }),
		},
		{
			ID:    "store.patience",
			needs: []string{"store.away"},
			Sentence: fmt.Sprintf("While the store is away, a role uses less than half of a processor, calls its host less than %d times and logs less than %d KiB a second: "+
				"a role that retries without a pause takes the processor that the store needs to come back.", maxSpinCalls, maxSpinLog>>10),
			absent: absent,
			run:    ofStoreLife(func(l *storeLife) error { return l.spun }),
		},
		{
			ID:       "store.back",
			needs:    []string{"store.away"},
			Sentence: fmt.Sprintf("When the store is back, a role is as before within %s, by itself: nobody else would wake it.", backTime),
			absent:   absentReady,
			run:      ofStoreLife(func(l *storeLife) error { return l.lost }),
		},
		{
			ID:    "store.revoked",
			needs: []string{"store.away"},
			Sentence: fmt.Sprintf("When its access is revoked, a role keeps running, does not fail, and stays within the limits of store.patience for %s. A restart would not bring the access back.",
				spinTime),
			absent: absent,
			run:    checkRevoked,
		},
		{
			ID:    "store.split",
			needs: []string{"store.away"},
			Sentence: fmt.Sprintf("In Split a role does as its manifest says: one that continues, or starts from cache, keeps the store and works on; one that is told loses the store, lives on, "+
				"and is as before within %s of the end of Split; one that is stopped ends as after every Stop, and starts again on its data.", backTime),
			absent: absent,
			run:    checkSplit,
		},
		{
			ID:    "store.full",
			needs: []string{"store.away"},
			Sentence: fmt.Sprintf("While the store has no room, a role lives on and has not failed; if something that it wrote was refused, it says so within %s as in store.told, and is as before within %s of "+
				"there being room again: a quota is raised, or something deleted, while the role runs.", toldTime, backTime),
			absent: absent,
			run:    checkFull,
		},
		{
			ID:    "store.leases",
			needs: []string{"lifecycle.stop"},
			Sentence: fmt.Sprintf("A stopped role leaves no lease that lives longer than %s. Such a lease blocks elections and locks for the next instance.",
				leftLease),
			absent: absent,
			run:    checkLeases,
		},
	}
	for n := range checks {
		checks[n].Profile, checks[n].storage = ConsensusUser, true
		if checks[n].ID != "store.ready" {
			checks[n].needs = append(checks[n].needs, "store.ready")
		}
	}
	return checks
}

// eachStored calls ask for every role with a ConsensusUser.
func (s *subject) eachStored(ask func(*rolev1.RoleManifest) error) error {
	return s.eachRole(func(of *rolev1.RoleManifest) error {
		if !usesStore(of) {
			return nil
		}
		return errors.Join(ask(of), s.endAll())
	})
}

// settledStored starts a role that uses the store, and returns it with its state when it has settled.
func (s *subject) settledStored(ctx context.Context, of *rolev1.RoleManifest, data string) (*instance, rolev1.RoleState, error) {
	i, err := s.settled(ctx, of, data)
	if err != nil {
		return nil, 0, err
	}
	if needsOnlyStore(of) {
		// It had only a moment. store.ready judges whether it takes too long.
		if now, err := i.await(ctx, readyTime, func(now *rolev1.WatchResponse) bool { return works(now) || blocked(now) }); err == nil {
			return i, now.GetState(), nil
		}
	}
	now, _ := i.status.Get()
	return i, now.GetState(), i.lives()
}

// asBefore waits until a role is in its former state again.
func (i *instance) asBefore(ctx context.Context, of *rolev1.RoleManifest, before rolev1.RoleState) error {
	if needsOnlyStore(of) && before == rolev1.RoleState_ROLE_STATE_READY {
		if _, err := i.await(ctx, backTime, func(now *rolev1.WatchResponse) bool { return now.GetState() == before || failed(now) }); err != nil && ctx.Err() == nil {
			now, _ := i.status.Get()
			return fmt.Errorf("it was Ready before, and after %s it is %s (%s)%s", backTime, now.GetState(), now.GetReason(), i.lastWords())
		}
	}
	return errors.Join(ctx.Err(), i.lives())
}

func failed(now *rolev1.WatchResponse) bool {
	return now.GetState() == rolev1.RoleState_ROLE_STATE_FAILED
}

// tells waits until a role that was Ready reports that it is not.
func (i *instance) tells(ctx context.Context, of *rolev1.RoleManifest, before rolev1.RoleState) error {
	if !needsOnlyStore(of) || before != rolev1.RoleState_ROLE_STATE_READY {
		return nil
	}
	now, err := i.await(ctx, toldTime, func(now *rolev1.WatchResponse) bool { return now.GetState() != before })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("it still says that it is Ready after %s", toldTime)
	case now.GetState() == rolev1.RoleState_ROLE_STATE_DEGRADED && now.GetReason() == "":
		return errors.New("it is Degraded, and does not say why")
	}
	return nil
}

func checkStoreReady(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachStored(func(of *rolev1.RoleManifest) error {
		if !needsOnlyStore(of) {
			return nil
		}
		began := time.Now()
		i, state, err := s.settledStored(ctx, of, "")
		switch {
		case err != nil:
			return err
		case i.cannotWork() != nil:
			return i.cannotWork()
		case !works(&rolev1.WatchResponse{State: state}):
			return fmt.Errorf("it is neither Ready nor Degraded after %s, but %s%s", readyTime, state, i.lastWords())
		}
		found = append(found, fmt.Sprintf("%s after %d ms", of.GetName(), time.Since(began).Milliseconds()))
		return nil
	})
	return strings.Join(found, ", "), err
}

func checkOwnKeys(ctx context.Context, s *subject) (string, error) {
	requests := 0
	err := s.eachStored(func(of *rolev1.RoleManifest) error {
		i, _, err := s.settledStored(ctx, of, "")
		if err == nil {
			err = i.livesFor(ctx, idleTime)
		}
		if err == nil {
			err = i.stopped(ctx)
		}
		if err != nil {
			return err
		}
		usage := s.users[of.GetName()].Usage()
		requests += usage.Requests
		if len(usage.Denied) > 0 {
			return fmt.Errorf("etcd refuses what is not its own: %s", strings.Join(usage.Denied, ", "))
		}
		return nil
	})
	return fmt.Sprintf("%d requests", requests), err
}

func checkStoreWaits(ctx context.Context, s *subject) (string, error) {
	return "", s.eachStored(func(of *rolev1.RoleManifest) error {
		host := s.standIn(of)
		if err := s.openStore(ctx, host, of); err != nil {
			return err
		}
		host.LoseStore()
		defer host.FindStore()
		before := host.Calls("OpenConsensus")
		i, err := s.start(ctx, of, "")
		if err == nil && needsOnlyStore(of) {
			i.asks(ctx, func() bool { return host.Calls("OpenConsensus") > before })
		}
		if err == nil {
			err = i.livesFor(ctx, spinTime)
		}
		if err != nil {
			return fmt.Errorf("while it is to wait for the store, %w", err)
		}
		host.FindStore()
		if !needsOnlyStore(of) {
			return nil
		}
		if _, err := i.await(ctx, backTime, func(now *rolev1.WatchResponse) bool { return works(now) || blocked(now) || failed(now) }); err != nil && ctx.Err() == nil {
			now, _ := i.status.Get()
			return fmt.Errorf("%s after the store has opened, it is %s%s", backTime, now.GetState(), i.lastWords())
		}
		return errors.Join(ctx.Err(), i.lives())
	})
}

// storeLife is what was observed of a role whose store went away and came back.
type storeLife struct {
	// err is why nothing was observed.
	err error
	// ended: the role ended. untold: it did not report the loss. spun: it did too much of something. lost: it did not recover.
	ended, untold, spun, lost error
}

// ofStoreLife makes a check that judges a part of every role's storeLife.
func ofStoreLife(part func(*storeLife) error) func(context.Context, *subject) (string, error) {
	return func(ctx context.Context, s *subject) (string, error) {
		return "", s.eachStored(func(of *rolev1.RoleManifest) error {
			life := s.storeLives[of.GetName()]
			if life == nil {
				life = s.liveStore(ctx, of)
				s.storeLives[of.GetName()] = life
			}
			return errors.Join(life.err, part(life))
		})
	}
}

// liveStore takes the store away from a role and gives it back.
func (s *subject) liveStore(ctx context.Context, of *rolev1.RoleManifest) *storeLife {
	i, before, err := s.settledStored(ctx, of, "")
	if err != nil {
		return &storeLife{err: err}
	}
	life, host := &storeLife{}, s.standIn(of)
	host.LoseStore()
	defer host.FindStore()
	life.spun = i.spins(ctx, host)
	life.untold = i.tells(ctx, of, before)
	if life.ended = i.livesFor(ctx, awayTime-spinTime); life.ended != nil {
		life.ended = fmt.Errorf("while the store is away, %w", life.ended)
		return life
	}
	host.FindStore()
	life.lost = i.asBefore(ctx, of, before)
	return life
}

func checkRevoked(ctx context.Context, s *subject) (string, error) {
	return "", s.eachStored(func(of *rolev1.RoleManifest) error {
		i, _, err := s.settledStored(ctx, of, "")
		if err != nil {
			return err
		}
		host := s.standIn(of)
		host.RevokeStore()
		defer s.openAgain(host, of)
		if err := errors.Join(i.spins(ctx, host), i.lives()); err != nil {
			return fmt.Errorf("when its access is revoked, %w", err)
		}
		return nil
	})
}

// openAgain undoes a revocation.
func (s *subject) openAgain(host *roletest.Host, of *rolev1.RoleManifest) {
	host.OpenStore(s.users[of.GetName()].Socket(), of.GetConsensusUser())
}

func checkSplit(ctx context.Context, s *subject) (string, error) {
	return "", s.eachStored(func(of *rolev1.RoleManifest) error {
		data, err := s.directory()
		if err != nil {
			return err
		}
		i, before, err := s.settledStored(ctx, of, data)
		if err != nil {
			return err
		}
		host := s.standIn(of)
		host.Split()
		defer host.Rejoin()
		if of.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP {
			if err := i.stopped(ctx); err != nil {
				return fmt.Errorf("stopped in Split: %w", err)
			}
			host.Rejoin()
			again, _, err := s.settledStored(ctx, of, data)
			if err == nil {
				err = again.asBefore(ctx, of, before)
			}
			return err
		}
		if err := errors.Join(i.spins(ctx, host), i.lives()); err != nil {
			return fmt.Errorf("in Split, %w", err)
		}
		if now, _ := i.status.Get(); keepsStore(of) && works(&rolev1.WatchResponse{State: before}) && !works(now) {
			return fmt.Errorf("in Split, where it keeps the store, it is %s (%s)", now.GetState(), now.GetReason())
		}
		host.Rejoin()
		return i.asBefore(ctx, of, before)
	})
}

// keepsStore reports whether a role keeps the store in Split.
func keepsStore(of *rolev1.RoleManifest) bool {
	return of.GetStartsFromCache() || of.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE
}

func checkFull(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachStored(func(of *rolev1.RoleManifest) (err error) {
		i, before, err := s.settledStored(ctx, of, "")
		if err != nil {
			return err
		}
		user := s.users[of.GetName()]
		if err := user.Full(ctx, true); err != nil {
			return err
		}
		roomy := func() error { return user.Full(context.WithoutCancel(ctx), false) }
		defer func() { err = errors.Join(err, roomy()) }()
		if err := i.livesFor(ctx, fullTime); err != nil {
			return fmt.Errorf("while the store has no room, %w", err)
		}
		refused := user.Usage().NoRoom
		if found = append(found, fmt.Sprintf("%d writes of %s were refused", refused, of.GetName())); refused > 0 {
			if err := errors.Join(i.tells(ctx, of, before), i.lives()); err != nil {
				return fmt.Errorf("while the store has no room for what it writes, %w", err)
			}
		}
		if err := roomy(); err != nil {
			return err
		}
		return i.asBefore(ctx, of, before)
	})
	return strings.Join(found, ", "), err
}

func checkLeases(ctx context.Context, s *subject) (string, error) {
	return "", s.eachStored(func(of *rolev1.RoleManifest) error {
		i, _, err := s.settledStored(ctx, of, "")
		if err == nil {
			err = i.stopped(ctx)
		}
		if err != nil {
			return err
		}
		left, err := s.users[of.GetName()].Leases(ctx)
		if err != nil {
			return err
		}
		for _, lease := range left {
			if lease > leftLease {
				return fmt.Errorf("when it has stopped, a lease of it is left that would live on for %s", lease)
			}
		}
		return nil
	})
}
