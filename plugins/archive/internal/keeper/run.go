package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/curator"
	"github.com/reeveproject/reeve/plugins/archive/internal/target"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// askEvery is how often the curator is asked for new snapshots, and lookEvery how often the places are looked at although it has none.
	askEvery  = time.Minute
	lookEvery = 10 * time.Minute
	// firstRetry and lastRetry bound the wait after a round that failed; it doubles in between.
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
	// silentTime is how long the curator may not answer before somebody is told.
	silentTime = 15 * time.Second
	// stallTime is how long a round may take without anything that moves.
	stallTime = 5 * time.Minute
)

// The kinds of places, as the metrics have them.
const (
	ofDirectory = "directory"
	ofBucket    = "bucket"
)

// Host is what the role needs of its host: a *role.Host has it.
type Host interface {
	curator.Dialer
	Configuration() []byte
	Grants() []role.Grant
	DataDirectory() string
	Logger() hclog.Logger
	Ready()
	Degraded(reason string)
}

// Source has the snapshots: a *curator.Curator.
type Source interface {
	List(ctx context.Context) ([]curator.Snapshot, error)
	Read(ctx context.Context, one curator.Snapshot) (io.ReadCloser, error)
}

// Place is where copies are kept.
type Place interface {
	// Place is where, for people.
	Place() string
	List(ctx context.Context) (map[snapshot.Name]int64, error)
	Put(ctx context.Context, name snapshot.Name, bytes int64, from io.Reader) error
	Remove(ctx context.Context, name snapshot.Name) error
	Close()
}

var (
	_ Place = (*target.Directory)(nil)
	_ Place = (*target.Bucket)(nil)
)

// Keeper is the role. Run may be called once.
type Keeper struct {
	metrics metrics

	now func() time.Time
	// Those of the same names; tests shorten them.
	askEvery, lookEvery, firstRetry, silentTime, stallTime time.Duration
}

// New returns a keeper.
func New() *Keeper {
	return &Keeper{now: time.Now, askEvery: askEvery, lookEvery: lookEvery, firstRetry: firstRetry, silentTime: silentTime, stallTime: stallTime}
}

// run keeps copies at one place, on its own: a file system that hangs holds nothing up but itself.
type run struct {
	*Keeper
	host          Host
	configuration *configuration.Granted
	curator       Source
	kind          string
	open          func() (Place, error)
	states        *states
	// had is what the curator had when all of it was last copied, at a time; the zero time: never.
	had    []curator.Snapshot
	looked time.Time
	// held are the snapshots that are not tried again before the next regular look, since nothing at the place mends what is wrong.
	held map[snapshot.Name]failure
	// watch is of the round that is under way.
	watch *watch
}

// failure is why there is no copy of a snapshot.
type failure struct {
	problem error
	at      time.Time
}

// Run keeps copies until ctx is done. It is Ready when there is a copy of everything that the curator has, as far as it is to be kept, and Degraded while something of that is not so.
func (k *Keeper) Run(ctx context.Context, host Host) error {
	configured, err := configuration.Of(host.Configuration(), host.Grants())
	if err != nil {
		return err
	}
	opened, err := curator.Open(host)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	places := make(map[string]func() (Place, error))
	if configured.Directory != "" {
		own := host.DataDirectory()
		if configured.SameDisk {
			own = ""
		}
		places[ofDirectory] = func() (Place, error) {
			return target.NewDirectory(configured.Directory, host.NodeID(), own), nil
		}
	}
	if bucket := configured.Bucket; bucket != nil {
		// The credentials are read for each round, so that they can be replaced.
		places[ofBucket] = func() (Place, error) {
			opened, err := target.OpenBucket(*bucket, host.NodeID())
			if err != nil {
				return nil, err
			}
			return opened, nil
		}
	}
	states := &states{host: host, places: len(places), now: make(map[string]error)}
	var running sync.WaitGroup
	for kind, open := range places {
		r := &run{Keeper: k, host: host, configuration: configured, curator: opened, kind: kind, open: open, states: states, held: make(map[snapshot.Name]failure)}
		running.Go(func() { r.keep(ctx) })
	}
	running.Wait()
	return nil
}

// keep keeps copies at the place until ctx is done.
func (r *run) keep(ctx context.Context) {
	for retry := r.firstRetry; ctx.Err() == nil; {
		problem := r.watched(ctx, r.round)
		if ctx.Err() != nil {
			break
		}
		wait := r.askEvery
		if problem == nil {
			retry = r.firstRetry
		} else {
			r.metrics.change(r.kind, func(c *counts) { c.failures++ })
			r.host.Logger().Error("not every snapshot is copied", "place", r.kind, "error", problem, "retry", retry.String())
			wait, retry = retry, min(2*retry, lastRetry)
		}
		r.states.set(r.kind, problem)
		pause(ctx, wait)
	}
}

// list returns what the curator has. It asks again for a while where the curator does not answer: one that is started again, or that has yet to hear of the role, is no problem of anybody.
func (r *run) list(ctx context.Context) ([]curator.Snapshot, error) {
	for began := time.Now(); ; {
		had, err := r.curator.List(ctx)
		if err == nil || ctx.Err() != nil || time.Since(began) >= r.silentTime {
			return had, err
		}
		pause(ctx, r.firstRetry)
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watched makes a round that is given up, and told of, when nothing moves. A system call of a file system that hangs cannot be ended: then it is told only.
func (r *run) watched(ctx context.Context, round func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.watch = newWatch(r.stallTime, func() {
		cancel(errStalled)
		r.states.set(r.kind, fmt.Errorf("nothing has moved for %s at the %s: see whether its file system or server answers, and the curator of this node", r.stallTime, r.kind))
	})
	defer r.watch.end()
	return round(ctx)
}

// round looks at everything once.
func (r *run) round(ctx context.Context) error {
	had, err := r.list(ctx)
	if err != nil {
		return err
	}
	if !r.looked.IsZero() && time.Since(r.looked) < r.lookEvery && slices.Equal(had, r.had) {
		return nil
	}
	r.looked = time.Time{}
	place, err := r.open()
	if err != nil {
		return err
	}
	defer place.Close()
	if err := r.tend(ctx, place, had); err != nil {
		return err
	}
	r.had, r.looked = had, time.Now()
	return nil
}

// tend makes the place as it should be.
func (r *run) tend(ctx context.Context, place Place, had []curator.Snapshot) error {
	copies, err := r.look(ctx, place, had)
	if err != nil {
		return err
	}
	maps.DeleteFunc(r.held, func(_ snapshot.Name, was failure) bool { return time.Since(was.at) >= r.lookEvery })
	keep := r.configuration.Keep
	var problems []error
	if newest, higher := behind(had, copies, keep); higher > 0 {
		problems = append(problems, fmt.Errorf("the numbers of the cluster's snapshots have begun again, as after a restore: %s has %d copies with higher numbers than the newest snapshot, %s: "+
			"move them away, or configure another place; none is removed until then", place.Place(), higher, newest))
		keep = 0
	}
	for _, one := range missing(had, copies, keep) {
		if was, ok := r.held[one.Name]; ok {
			problems = append(problems, was.problem)
		}
	}
	copied, failed := r.copyMissing(ctx, place, had, copies, keep)
	problems = append(failed, problems...) // what is new comes first, before what may be so long that no room is left for it
	if len(copied) > 0 {
		if copies, err = r.look(ctx, place, had); err != nil {
			return errors.Join(append(problems, err)...)
		}
	}
	for _, one := range copied {
		if _, ok := copies[one.Name]; !ok {
			problems = append(problems, r.hold(one, fmt.Errorf("%s does not have the copy of %s that was just written there, with %d bytes: see who else writes there", place.Place(), one, one.Bytes)))
		}
	}
	for _, name := range tooMany(copies, keep) {
		r.watch.move()
		if err := place.Remove(ctx, name); err != nil {
			problems = append(problems, err)
			break
		}
		delete(copies, name)
		r.host.Logger().Info("removed a copy, since there are newer ones", "name", name.String(), "from", place.Place())
	}
	r.metrics.change(r.kind, func(c *counts) { c.copies, c.newest = len(copies), latest(copies, r.now().Add(mostAhead)) })
	return errors.Join(problems...)
}

// copyMissing copies what is missing, the newest first. What cannot be read takes the place of nothing that can. It adds to copies what it copied.
func (r *run) copyMissing(ctx context.Context, place Place, had []curator.Snapshot, copies map[snapshot.Name]int64, keep int) (copied []curator.Snapshot, problems []error) {
	gone := make(map[snapshot.Name]bool)
	for {
		todo := missing(slices.DeleteFunc(slices.Clone(had), func(one curator.Snapshot) bool {
			_, held := r.held[one.Name]
			return held || gone[one.Name]
		}), copies, keep)
		if len(todo) == 0 {
			return copied, problems
		}
		one := todo[0]
		err := r.copy(ctx, place, one)
		source := (*sourceError)(nil)
		switch {
		case err == nil:
			copied, copies[one.Name] = append(copied, one), one.Bytes
			r.host.Logger().Info("copied a snapshot", "name", one.String(), "bytes", one.Bytes, "to", place.Place())
		case errors.Is(err, curator.ErrNone):
			gone[one.Name] = true // it was removed since there are newer ones
		case errors.As(err, &source) && !errors.Is(err, curator.ErrAway):
			problems = append(problems, r.hold(one, err))
		default:
			return copied, slices.Insert(problems, 0, err) // what is wrong with one is wrong with the next
		}
	}
}

// hold leaves a snapshot until the next regular look.
func (r *run) hold(one curator.Snapshot, problem error) error {
	r.held[one.Name] = failure{problem: problem, at: time.Now()}
	return problem
}

// look returns the copies that are as long as they should be.
func (r *run) look(ctx context.Context, place Place, had []curator.Snapshot) (map[snapshot.Name]int64, error) {
	r.watch.move()
	copies, err := place.List(ctx)
	for _, one := range had {
		if size, ok := copies[one.Name]; ok && size != one.Bytes {
			delete(copies, one.Name)
		}
	}
	return copies, err
}
