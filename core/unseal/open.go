package unseal

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Open takes the node to its open volume, and returns what it must know to go on. It makes a node that is new, and waits for a key as long as it takes. It
// fails with the context's error, and with those that neither time nor the recovery key can mend, and is not called again then.
func (r *Room) Open(ctx context.Context) (*Opened, error) {
	err := r.bring(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
	if err != nil {
		r.failedOnce.Do(func() { close(r.failed) })
		if ctx.Err() == nil {
			r.board.problem(err)
		}
		return nil, err
	}
	return r.opened(), nil
}

func (r *Room) bring(ctx context.Context) error {
	r.mu.Lock()
	open, fresh := r.open, r.configuration == nil && r.fresh()
	r.mu.Unlock()
	switch {
	case open:
		return nil
	case fresh:
		return r.make(ctx)
	}
	return r.restart(ctx)
}

// loaded is what became of the sealed configuration and the volume, as far as they can be known without the CUK.
type loaded struct {
	configuration *seal.Configuration
	state         volume.State
	err           error
}

// restart opens the volume of a node that was made. The sources of the CUK are asked side by side, and each try is made here, one after the other.
func (r *Room) restart(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tries := make(chan *attempt)
	ask := func(s source) {
		running.Go(func() {
			s.seek(ctx, func(state clusterv1.CukSourceState, reason string) { r.board.source(s.name(), state, reason) }, func(f *found) error {
				return offerTo(ctx, tries, f)
			})
		})
	}
	if r.isSealed() {
		if err := r.staySealed(ctx); err != nil {
			return err
		}
	} else {
		if err := r.closeLeft(ctx, volume.Closed); err != nil {
			r.config.Log.Error("what an earlier core has left of the volume is not closed yet", "error", err)
		}
		r.board.state(locked, "")
	}
	if r.encrypted() {
		ask(recoverySource{r.offers})
	}
	reading := r.startReading(ctx, &running)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reading.ready():
			reading.seen = true
			needed, err := r.proceed(ctx, reading.result)
			if err == nil && needed {
				needed, err = r.openRegistering(ctx)
			}
			if err != nil || !needed {
				return err
			}
			if reading.result.err == nil && r.configuration.CUK != nil && !r.isSealed() {
				ask(keptSource{r})
			}
			if reading.result.err == nil && r.configuration.Registration != nil {
				r.board.withCluster()
				ask(clusterSource{room: r, configuration: *r.configuration})
			}
			if reading.result.err == nil && r.parts.tpm != nil {
				ask(tpmSource{room: r, of: r.volume(), allowed: allows(reading.result.configuration.CUKSources, sourceTPM)})
			}
		case t := <-tries:
			if t.found.removed != "" {
				err := r.Disown(t.found.removed)
				if err == nil {
					err = ErrDisowned
				}
				t.verdict <- err
				if errors.Is(err, ErrDisowned) {
					return err
				}
				continue
			}
			opened, err := false, error(nil)
			if t.found.recovered != nil {
				opened, err = r.hurry(ctx, reading)
			}
			if err == nil && !opened {
				err = r.try(ctx, t.found, reading)
			}
			t.found.destroy()
			t.verdict <- err
			var fatal *fatalError
			switch {
			case err == nil:
				return nil
			case errors.As(err, &fatal):
				return fatal.error
			case !reading.seen:
				reading = r.startReading(ctx, &running)
			}
		}
	}
}

// attempt is a key to try.
type attempt struct {
	found   *found
	verdict chan error
}

func offerTo(ctx context.Context, tries chan<- *attempt, f *found) error {
	a := &attempt{f, make(chan error, 1)}
	select {
	case tries <- a:
		return <-a.verdict
	case <-ctx.Done():
		f.destroy()
		return ctx.Err()
	}
}

func (r *Room) isSealed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sealed
}

// reading is the reading of the sealed configuration, which goes on until it works or cannot.
type reading struct {
	cancel context.CancelFunc
	done   chan struct{}
	// result is valid when done is closed, seen whether anybody has gone on with it.
	result loaded
	seen   bool
}

// ready is closed once there is a result that nobody has gone on with; nil if nothing is to come.
func (r *reading) ready() <-chan struct{} {
	if r.seen {
		return nil
	}
	return r.done
}

// startReading begins to read the sealed configuration, unless the node was sealed: nobody is asked for anything then before its owner is there.
func (r *Room) startReading(ctx context.Context, running *sync.WaitGroup) *reading {
	ctx, cancel := context.WithCancel(ctx)
	started := &reading{cancel: cancel, done: make(chan struct{})}
	if r.isSealed() {
		return started
	}
	running.Go(func() {
		defer close(started.done)
		started.result = r.load(ctx, true)
	})
	return started
}

// hurry ends the reading of the configuration, since there is a key to try, and goes on with what was read. It says whether the volume is open by that already.
func (r *Room) hurry(ctx context.Context, reading *reading) (opened bool, _ error) {
	if reading.seen {
		return false, nil
	}
	reading.cancel()
	if r.isSealed() {
		reading.result = r.load(ctx, false)
	} else {
		<-reading.done
	}
	if err := reading.result.err; errors.Is(err, context.Canceled) || errors.Is(err, tpm2.ErrUnavailable) {
		// Nobody knows yet whether it can be read. The key is tried without it, and it is read again if that fails.
		return false, nil
	}
	if reading.result.err != nil {
		// What keeps it from being read the try is told, and it is read again if that fails.
		_, err := r.unreadable(reading.result.err)
		return false, err
	}
	reading.seen = true
	needed, err := r.proceed(ctx, reading.result)
	return err == nil && !needed, err
}

// load reads the sealed configuration and finds out what there is of the volume, again and again while that may help.
func (r *Room) load(ctx context.Context, patient bool) loaded {
	var l loaded
	read := func() error {
		if l.configuration == nil {
			err := r.take(checkpoint.Unseal, func() (err error) {
				if l.configuration, err = r.store.Load(ctx); err == nil && l.configuration == nil {
					err = r.missing()
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		kind := r.parts.kind(l.configuration.NodeID())
		if found := kind.Describe().Kind; found != l.configuration.VolumeKind {
			return &fatalError{&OtherKindError{Path: r.config.Storage.Configuration(), Made: l.configuration.VolumeKind, Wanted: found}}
		}
		var err error
		if l.state, err = kind.State(ctx); err != nil {
			return stateError(err)
		}
		// A core that was killed while it opened or closed the volume may have left the key with the kernel; one that was sealing it, even the volume open, on which
		// no role runs any more.
		if l.state == volume.Closed || l.state == volume.Open && r.isSealed() {
			if err := r.config.Storage.WithoutData(func() error { return kind.Close(ctx) }); err != nil {
				return stateError(err)
			}
			l.state = volume.Closed
		}
		return nil
	}
	if patient {
		l.err = patiently(ctx, func(err error) { r.board.problem(fmt.Errorf("tried again: %w", err)) }, read)
	} else {
		l.err = read()
	}
	if l.err != nil && l.configuration != nil {
		l.configuration.Destroy()
		l.configuration = nil
	}
	return l
}

// stateError says of an error of volume.Kind.State whether it may pass: a device may come late.
func stateError(err error) error {
	var damaged *volume.DamagedError
	var root *volume.NeedsRootError
	var program *volume.MissingProgramError
	if errors.As(err, &damaged) || errors.As(err, &root) || errors.As(err, &program) {
		return &fatalError{err}
	}
	return &againError{err}
}

// fatalError marks an error that no key mends.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// proceed goes on with what was loaded. It says whether a key is needed; else the volume is open.
func (r *Room) proceed(ctx context.Context, l loaded) (again bool, err error) {
	if l.err != nil {
		return r.withoutConfiguration(ctx, l.err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known(l.configuration)
	r.refresh()
	description := r.kind.Describe()
	if r.beingMade() {
		r.mu.Unlock()
		defer r.mu.Lock()
		return false, r.make(ctx)
	}
	switch {
	case description.KeySize == 0 || l.state == volume.Open:
		r.board.state(opening, "")
		return false, r.openOnly(ctx)
	case l.state == volume.Absent:
		return false, r.gone()
	}
	switch {
	case r.sealed:
	case r.parts.tpm != nil, r.configuration.Registration != nil && allows(r.configuration.CUKSources, sourceCluster):
		// Whatever its source finds, it says.
		r.board.state(locked, "")
	default:
		r.board.state(locked, needsOwner)
	}
	return true, nil
}

// openRegistering opens the volume of a node whose half of the key the cluster does not have yet: until then it is in the sealed configuration. It says whether
// that does not work, now at least: keptSource goes on with it while the other sources are asked.
func (r *Room) openRegistering(ctx context.Context) (needed bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed || r.configuration == nil || r.configuration.CUK == nil {
		return true, nil
	}
	r.board.state(opening, "")
	err := r.openBy(ctx, "", r.configuration.CUK)
	var fatal *fatalError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &fatal):
		return false, fatal.error
	}
	r.board.state(locked, fmt.Sprintf("%v: `reeve node unlock` with the owner's recovery key opens the volume", err))
	return true, nil
}

// needsOwner is the problem of a node of whose sources only the owner is left.
const needsOwner = "no source gives the volume's key by itself: `reeve node unlock` opens it with the owner's recovery key"

// gone is the error of a node whose volume is not there.
func (r *Room) gone() error {
	return r.noVolume(r.configuration.NodeID(), r.configuration.ClusterID, r.configuration.Location)
}

// noVolume says that there is no volume of a node that was made with one at a location.
func (r *Room) noVolume(nodeID, clusterID, made string) error {
	location, was := r.kind.Describe().Location, ""
	if made != location {
		was = fmt.Sprintf("; it was at %s, so put that back into the parameters", made)
	}
	return &storage.VolumeError{Data: r.config.Storage.Data, Problem: fmt.Sprintf(
		"there is no volume at %s, though node %s of cluster %s has one%s: attach or mount the disk that holds it, or restore it from a backup. Keep the system directory, without which nothing opens the volume; it is not made again",
		location, nodeID, clusterID, was)}
}

// unreadable says what an error of the sealed configuration means: that the node waits for the recovery key, or that it fails.
func (r *Room) unreadable(err error) (wait bool, _ error) {
	var fatal *fatalError
	if errors.As(err, &fatal) {
		return false, fatal.error
	}
	if hopeless := r.hopeless(err); hopeless != nil {
		return false, hopeless
	}
	r.board.problem(err)
	return true, nil
}

// withoutConfiguration goes on where the sealed configuration cannot be read. A volume that is waited for is closed, unless roles of an earlier core run on it, which
// nobody wants to lose.
func (r *Room) withoutConfiguration(ctx context.Context, problem error) (wait bool, _ error) {
	var fatal *fatalError
	if errors.As(problem, &fatal) || r.hopeless(problem) != nil {
		return r.unreadable(problem)
	}
	var busy *volume.BusyError
	switch err := r.closeLeft(ctx, volume.Open); {
	case errors.As(err, &busy):
		problem = fmt.Errorf("%w; the volume is open all the same, as an earlier core has left it, and in use (%v): `reeve node unlock` has the node go on with it", problem, busy)
	case err != nil:
		problem = fmt.Errorf("%w; and what an earlier core has left of the volume is not closed: %w", problem, err)
	}
	return r.unreadable(problem)
}

// openOnly opens a volume that needs no key: it is not encrypted, or was never closed.
func (r *Room) openOnly(ctx context.Context) error {
	if err := r.take(checkpoint.OpenVolume, func() error { return r.openMine(ctx, nil) }); err != nil {
		var fatal *fatalError
		if errors.As(err, &fatal) {
			return fatal.error
		}
		return err
	}
	return r.finish(ctx, "", nil)
}
