package unseal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// finish is what follows once the volume is open: the node's files are made to say the same again, and the parameters are marked as used. The data key is the
// one that has opened the volume; nil if it was open.
func (r *Room) finish(ctx context.Context, from string, data *keys.Secret) error {
	ticket := ""
	if r.configuration.Registration != nil {
		ticket = r.configuration.Registration.TicketID
	}
	if r.configuration.Phase.Before(seal.Member) {
		err := r.take(checkpoint.ConsumeParameters, func() error {
			consumed, err := r.parts.consumed()
			if err != nil {
				return err
			}
			return consumed.Mark(r.config.Parameters, ticket, r.NodeID(), r.configuration.ClusterID)
		})
		if err != nil {
			return err
		}
	}
	if err := r.config.Mark.Keep(r.config.Parameters, ticket, r.NodeID(), r.configuration.ClusterID, paths(r.config.Storage.Layout, r.kind.Describe())...); err != nil {
		// A directory of parameters may rightly be read-only.
		r.config.Log.Warn("cannot remember beside the parameters that this machine has a node: if its disk is not mounted one day, nothing keeps them from making another node", "error", err)
	}
	if err := r.mend(ctx, data); err != nil {
		r.config.Log.Error("the volume is open, and its keys are not kept as they should be", "error", err)
	}
	r.settled(from)
	return nil
}

// settled says that the volume is open.
func (r *Room) settled(from string) {
	r.sealed, r.open = false, true
	r.board.settle(from)
	r.refresh()
	r.board.update(func(s *clusterv1.StorageStatus) { s.State, s.Step, s.Problem = isOpen, "", "" })
}

// unsealed ends the wish that nothing but the owner opens the volume.
func (r *Room) unsealed() error {
	if err := os.Remove(r.config.Storage.Sealed()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// finishNotes is finish for who has given a recovery file: what does not work is told, and the volume is open all the same.
func (r *Room) finishNotes(ctx context.Context, data *keys.Secret) []string {
	problem := r.mend(ctx, data)
	if err := r.finish(ctx, sourceRecovery, nil); err != nil {
		problem = errors.Join(problem, err)
		r.settled(sourceRecovery)
	}
	if problem == nil {
		return nil
	}
	return []string{fmt.Sprintf("the volume is open, and not all of the node's files could be mended: %v; it is tried again at the next start", problem)}
}

// mend does what belongs to a start besides opening: a location that has changed, a state of the machine that was planned, files that are damaged.
func (r *Room) mend(ctx context.Context, data *keys.Secret) error {
	if r.unkept {
		return nil
	}
	var problems []error
	if location := r.kind.Describe().Location; r.configuration.Location != location {
		problems = append(problems, r.save(ctx, func(c *seal.Configuration) { c.Location = location }))
	}
	if r.cuk != nil && r.encrypted() {
		problems = append(problems, r.settle(ctx, data))
	}
	problems = append(problems, r.leavePresent(ctx))
	return errors.Join(problems...)
}

// settle has the wrapped key, the recovery file and the TPM know the same keys, the ones of the room: it finishes a rotation that was interrupted, and writes
// anew what is damaged or missing.
func (r *Room) settle(ctx context.Context, data *keys.Secret) error {
	if r.configuration.NextNUK != nil {
		return r.settleRotation(ctx, data)
	}
	known, err := r.settleWrapped(data)
	if err != nil {
		return err
	}
	defer known.Destroy()
	if _, recipient, err := recovery.Read(r.config.Storage.Recovery()); err != nil || recipient != r.configuration.RecoveryRecipient || recovery.Check(r.config.Storage.Recovery()) != nil {
		if err := r.take(checkpoint.WriteRecovery, func() error { return r.writeRecovery(r.configuration.NUK, r.cuk, known) }); err != nil {
			return err
		}
	}
	return r.settleCUK(ctx)
}

// settleWrapped has the wrapped key be that of the halves of the room, and returns the data key. Only a key that has just opened the volume is written over
// another.
func (r *Room) settleWrapped(data *keys.Secret) (*keys.Secret, error) {
	halves := keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk}
	known, err := r.wrapped.Open(r.volume(), halves)
	if err == nil && (data == nil || known.Equal(data)) {
		// What else is wrapped there is the rest of something that was interrupted before it began.
		if err := r.wrapped.Keep(r.volume(), halves); err != nil {
			known.Destroy()
			return nil, err
		}
		return known, nil
	}
	known.Destroy()
	if data == nil {
		return nil, err
	}
	if err := r.take(checkpoint.WrapDataKey, func() error { return r.wrapped.Replace(r.volume(), halves, data) }); err != nil {
		return nil, err
	}
	return data.Clone()
}

// settleCUK has the TPM know the CUK, if it may.
func (r *Room) settleCUK(ctx context.Context) error {
	if !r.wantsCUK() {
		return r.dropCUK()
	}
	f, err := r.readCUK(r.volume())
	if err == nil && f.ID == r.cuk.ID() && !r.stale {
		return nil
	}
	if err := r.take(checkpoint.SealCUK, func() error { return r.writeCUK(ctx, r.cuk, nil) }); err != nil {
		return err
	}
	r.stale = false
	return nil
}

// leavePresent removes the sealed forms for the state that the machine has left, when it was found in the planned one.
func (r *Room) leavePresent(ctx context.Context) error {
	if r.parts.tpm == nil {
		return nil
	}
	var problems []error
	if only := r.configurationForms.planned(); only != nil {
		problems = append(problems, r.take(checkpoint.Reseal, func() error {
			if err := r.store.Reseal(ctx, func(context.Context, *keys.Secret) (rawForms, error) { return only, nil }); err != nil {
				return err
			}
			r.configurationForms.done()
			return nil
		}))
	}
	if only := r.cukForms.planned(); only != nil && there(r.config.Storage.CUK()) {
		problems = append(problems, r.take(checkpoint.Reseal, func() error {
			if err := r.keepCUK(r.cuk.ID(), only); err != nil {
				return err
			}
			r.cukForms.done()
			return nil
		}))
	}
	return errors.Join(problems...)
}

// settleRotation takes a rotation that was interrupted to its end, or back where it began if the keys that come were never given to anybody.
func (r *Room) settleRotation(ctx context.Context, data *keys.Secret) error {
	next, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NextNUK, CUK: r.cuk})
	if err == nil {
		defer next.Destroy()
		old, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk})
		if err != nil {
			old = nil
		}
		defer old.Destroy()
		return r.advance(ctx, old, next, r.cuk)
	}
	// The CUK that is known is not the one that comes, or nothing was wrapped by it yet. Whatever a source was given of it is taken back.
	known, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk})
	if err != nil {
		if data == nil {
			return err
		}
		if known, err = data.Clone(); err != nil {
			return err
		}
		if err := r.take(checkpoint.RotateWrap, func() error {
			return r.wrapped.Replace(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk}, data)
		}); err != nil {
			known.Destroy()
			return err
		}
	}
	defer known.Destroy()
	if err := r.take(checkpoint.RotateSources, func() error { return r.writeRecovery(r.configuration.NUK, r.cuk, known) }); err != nil {
		return err
	}
	if err := r.settleCUK(ctx); err != nil {
		return err
	}
	return r.endRotation(ctx, r.configuration.NUK, r.cuk)
}
