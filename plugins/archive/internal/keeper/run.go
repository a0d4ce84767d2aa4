package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
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
	// stuckTime is how long a round may take without a byte that moves.
	stuckTime = 15 * time.Minute
	// stallTime is how long a copy may take without a byte that is read for it.
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
	// moved is when something last moved in a round that is under way, in nanoseconds of the Unix epoch; 0: none is.
	moved atomic.Int64

	now func() time.Time
	// Those of the same names; tests shorten them.
	askEvery, lookEvery, firstRetry, silentTime, stallTime time.Duration
}

// New returns a keeper.
func New() *Keeper {
	return &Keeper{now: time.Now, askEvery: askEvery, lookEvery: lookEvery, firstRetry: firstRetry, silentTime: silentTime, stallTime: stallTime}
}

// CheckHealth returns an error if the role hangs.
func (k *Keeper) CheckHealth(context.Context) error {
	if moved := k.moved.Load(); moved != 0 {
		if since := time.Since(time.Unix(0, moved)); since > stuckTime {
			return fmt.Errorf("nothing has moved for %s while snapshots are copied", since.Round(time.Second))
		}
	}
	return nil
}

// run is one Run.
type run struct {
	*Keeper
	host          Host
	configuration *configuration.Granted
	curator       Source
	// had is what the curator had when all of it was last copied, at a time; the zero time: never.
	had    []curator.Snapshot
	looked time.Time
	// held are the copies that are not tried again before the next regular look, since nothing at the place mends what is wrong.
	held map[attempt]failure
}

// attempt is a copy of a snapshot at a kind of place, and failure is why there is none.
type (
	attempt struct {
		kind string
		name snapshot.Name
	}
	failure struct {
		problem error
		at      time.Time
	}
)

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
	r := &run{Keeper: k, host: host, configuration: configured, curator: opened, held: make(map[attempt]failure)}
	for retry := k.firstRetry; ctx.Err() == nil; {
		k.move()
		problem := r.round(ctx)
		k.moved.Store(0)
		if ctx.Err() != nil {
			break
		}
		wait := k.askEvery
		if problem == nil {
			host.Ready()
			retry = k.firstRetry
		} else {
			host.Logger().Error("not every snapshot is copied", "error", problem, "retry", retry.String())
			host.Degraded(strings.ReplaceAll(problem.Error(), "\n", "; "))
			wait, retry = retry, min(2*retry, lastRetry)
		}
		pause(ctx, wait)
	}
	return nil
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

// round looks at everything once.
func (r *run) round(ctx context.Context) error {
	had, err := r.list(ctx)
	if err != nil {
		return err
	}
	if !r.looked.IsZero() && time.Since(r.looked) < r.lookEvery && slices.Equal(had, r.had) {
		return nil
	}
	var problems []error
	if r.configuration.Directory != "" {
		own := r.host.DataDirectory()
		if r.configuration.SameDisk {
			own = ""
		}
		problems = append(problems, r.at(ctx, ofDirectory, target.NewDirectory(r.configuration.Directory, r.host.NodeID(), own), had))
	}
	if bucket := r.configuration.Bucket; bucket != nil {
		// The credentials are read for each round, so that they can be replaced.
		opened, err := target.OpenBucket(*bucket, r.host.NodeID())
		if err == nil {
			err = r.at(ctx, ofBucket, opened, had)
		} else {
			r.failed(ofBucket)
		}
		problems = append(problems, err)
	}
	if problem := errors.Join(problems...); problem != nil {
		r.looked = time.Time{}
		return problem
	}
	r.had, r.looked = had, time.Now()
	return nil
}

// at makes one place as it should be.
func (r *run) at(ctx context.Context, kind string, place Place, had []curator.Snapshot) error {
	defer place.Close()
	err := r.tend(ctx, kind, place, had)
	if err != nil {
		r.failed(kind)
	}
	return err
}

func (r *run) failed(kind string) { r.metrics.change(kind, func(c *counts) { c.failures++ }) }

func (r *run) tend(ctx context.Context, kind string, place Place, had []curator.Snapshot) error {
	copies, err := r.look(ctx, place, had)
	if err != nil {
		return err
	}
	maps.DeleteFunc(r.held, func(_ attempt, was failure) bool { return time.Since(was.at) >= r.lookEvery })
	keep := r.configuration.Keep
	var problems []error
	if newest, ok := behind(had, copies, keep); ok {
		problems = append(problems, fmt.Errorf("the numbers of the cluster's snapshots have begun again, as after a restore: %s has %d copies with higher numbers than the newest snapshot, %s: "+
			"move them away, or configure another place; none is removed until then", place.Place(), keep, newest))
		keep = 0
	}
	var copied []curator.Snapshot
	for _, one := range missing(had, copies, r.configuration.Keep) {
		if was, ok := r.held[attempt{kind, one.Name}]; ok {
			problems = append(problems, was.problem)
			continue
		}
		err := r.copy(ctx, place, one)
		if err == nil {
			copied = append(copied, one)
			r.host.Logger().Info("copied a snapshot", "name", one.String(), "bytes", one.Bytes, "to", place.Place())
			continue
		}
		if errors.Is(err, curator.ErrNone) {
			continue // it was removed since there are newer ones
		}
		if source := (*sourceError)(nil); !errors.As(err, &source) || errors.Is(err, curator.ErrAway) {
			problems = slices.Insert(problems, 0, err) // before what may be so long that no room is left for it
			break                                      // what is wrong with one is wrong with the next
		}
		problems = append(problems, err)
		r.held[attempt{kind, one.Name}] = failure{problem: err, at: time.Now()}
	}
	if len(copied) > 0 {
		if copies, err = r.look(ctx, place, had); err != nil {
			return errors.Join(append(problems, err)...)
		}
	}
	for _, one := range copied {
		if _, ok := copies[one.Name]; !ok {
			problem := fmt.Errorf("%s does not have the copy of %s that was just written there, with %d bytes: see who else writes there", place.Place(), one, one.Bytes)
			problems, r.held[attempt{kind, one.Name}] = append(problems, problem), failure{problem: problem, at: time.Now()}
		}
	}
	for _, name := range tooMany(copies, keep) {
		r.move()
		if err := place.Remove(ctx, name); err != nil {
			problems = append(problems, err)
			break
		}
		delete(copies, name)
		r.host.Logger().Info("removed a copy, since there are newer ones", "name", name.String(), "from", place.Place())
	}
	r.metrics.change(kind, func(c *counts) {
		c.copies, c.newest = len(copies), time.Time{}
		if all := names(copies); len(all) > 0 {
			c.newest = slices.MinFunc(all, newer).Asked
		}
	})
	return errors.Join(problems...)
}

// look returns the copies that are as long as they should be.
func (r *run) look(ctx context.Context, place Place, had []curator.Snapshot) (map[snapshot.Name]int64, error) {
	r.move()
	copies, err := place.List(ctx)
	for _, one := range had {
		if size, ok := copies[one.Name]; ok && size != one.Bytes {
			delete(copies, one.Name)
		}
	}
	return copies, err
}

// move notes that something moves.
func (k *Keeper) move() { k.moved.Store(time.Now().UnixNano()) }
