package unseal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// source is a way by which the node may get the CUK. All of them are asked side by side.
type source interface {
	name() string
	// seek looks for the CUK and tries what it finds, until one opens the volume, the context ends, or there is nothing more that it could find. It tells what
	// it waits for, or why it does not work.
	seek(ctx context.Context, tell tell, try func(*found) error)
}

type tell func(state clusterv1.CukSourceState, reason string)

// found is what a source has found. It is destroyed by who tries it.
type found struct {
	source string
	cuk    *keys.Secret
	// recovered is all that a recovery file held; nil from other sources.
	recovered *recovery.Recovered
	// removed is why the node was removed from its cluster, if that is what a source has found.
	removed string
	// notes are for whoever gave the key.
	notes []string
}

func (f *found) destroy() {
	f.cuk.Destroy()
	if f.recovered != nil {
		f.recovered.Destroy()
	}
}

// tpmSource asks the TPM of the machine.
type tpmSource struct {
	room *Room
	// of is the volume whose CUK it has, allowed whether the cluster's policy allows it.
	of      keys.Volume
	allowed bool
}

func (tpmSource) name() string { return sourceTPM }

func (s tpmSource) seek(ctx context.Context, tell tell, try func(*found) error) {
	if !s.allowed {
		tell(off, notAllowed)
		s.room.board.problem(errors.New(needsOwner))
		return
	}
	tell(waiting, "the TPM")
	err := patiently(ctx, func(err error) { tell(waiting, "tried again: "+err.Error()) }, func() error {
		var cuk *keys.Secret
		err := s.room.take(checkpoint.GetCUK, func() (err error) {
			cuk, err = s.room.unsealCUK(ctx, s.of)
			return err
		})
		if err != nil {
			return err
		}
		return try(&found{source: sourceTPM, cuk: cuk})
	})
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errNoCUK):
		tell(off, "the TPM does not have the key: "+err.Error())
		s.room.board.problem(fmt.Errorf("%s (%w)", needsOwner, err))
	default:
		s.room.spoil()
		tell(failed, err.Error())
		s.room.board.problem(fmt.Errorf("%w: `reeve node unlock` with the owner's recovery key opens the volume", err))
	}
}

// keptSource tries the half of the key that is in the sealed configuration, as long as the cluster does not have it. It never gives up: whatever keeps the volume
// from being opened may pass, such as a device that comes late or a full disk. It is no source that people know of.
type keptSource struct{ room *Room }

func (keptSource) name() string { return "" }

func (s keptSource) seek(ctx context.Context, _ tell, try func(*found) error) {
	again := func(err error) {
		s.room.board.problem(fmt.Errorf("tried again: %w: `reeve node unlock` with the owner's recovery key opens the volume", err))
	}
	_ = patiently(ctx, again, func() error {
		cuk, err := s.room.keptCUK()
		if err == nil {
			err = try(&found{cuk: cuk})
		}
		if err == nil {
			return nil
		}
		return &againError{err}
	})
}

func (r *Room) keptCUK() (*keys.Secret, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.configuration.CUK.Clone()
}

// recoverySource waits for the owner.
type recoverySource struct{ offers <-chan *offer }

func (recoverySource) name() string { return sourceRecovery }

func (s recoverySource) seek(ctx context.Context, tell tell, try func(*found) error) {
	for {
		tell(waiting, "the owner's recovery key")
		select {
		case <-ctx.Done():
			return
		case o := <-s.offers:
			f := &found{source: sourceRecovery, recovered: o.recovered}
			err := try(f)
			o.answer <- answer{f.notes, err}
			if err == nil {
				return
			}
		}
	}
}

// spoil keeps that the TPM does not give the CUK back, so that it gets it anew when the volume is open.
func (r *Room) spoil() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = true
}

// The bounds between tries.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

// patiently does something until it works, and again only where time may help. It tells each error before it waits.
func patiently(ctx context.Context, tell func(error), do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = retryFirst, retryMost
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := do()
		var again *againError
		if err != nil && !errors.Is(err, tpm2.ErrUnavailable) && !errors.As(err, &again) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, _ time.Duration) { tell(err) }))
	var permanent *backoff.PermanentError
	if errors.As(err, &permanent) {
		err = permanent.Err
	}
	return err
}

// againError marks an error that passes, it may be, when the machine has come further.
type againError struct{ error }

func (e *againError) Unwrap() error { return e.error }
