package unseal

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// RotateKeys is what the RPC of the name does.
//
// A rotation is kept in the sealed configuration before it begins, by the NUK that comes. From then on until its end the data key is wrapped twice, and
// whatever a source gives at any time opens the volume. The next start ends what was interrupted.
func (r *Room) RotateKeys(ctx context.Context, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	recipient, nuk, cuk, data := request.GetRecoveryRecipient(), request.GetNuk(), request.GetCuk(), request.GetDataKey()
	if err := r.checkRotation(recipient, data); err != nil {
		return nil, err
	}
	held := r.configuration.Registration != nil
	if held && cuk {
		return nil, status.Error(codes.FailedPrecondition, "the cluster holds its half of the key of this node's volume (CUK), and the node cannot change it alone: leave out the CUK, and rotate the NUK or the data key")
	}
	if !nuk && !cuk && !data && recipient == "" {
		nuk, cuk = true, !held
	}
	if err := r.needCUK(ctx); err != nil {
		return nil, err
	}
	if request.GetDryRun() {
		return &nodev1.RotateKeysResponse{}, nil
	}
	defer r.refresh()
	if err := r.keep(ctx); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err := r.settle(ctx, nil); err != nil {
		return nil, rotationError(err)
	}
	if recipient != "" && recipient != r.configuration.RecoveryRecipient {
		if err := r.rotateRecipient(ctx, recipient); err != nil {
			return nil, rotationError(err)
		}
	}
	// The data key and the CUK are never rotated at the same time: each of the two must be opened by what is left of the other.
	if data || nuk && !cuk {
		if err := r.rotate(ctx, false, data); err != nil {
			return nil, rotationError(err)
		}
	}
	if cuk {
		if err := r.rotate(ctx, true, false); err != nil {
			return nil, rotationError(err)
		}
	}
	return &nodev1.RotateKeysResponse{}, nil
}

// rotationError says what it means that a rotation stopped.
func rotationError(err error) error {
	return status.Errorf(codes.Aborted, "%v: nothing is lost, the keys of before or those that come open the volume; say it again, or restart the node, which ends what was begun", err)
}

func (r *Room) checkRotation(recipient string, data bool) error {
	description := r.kind.Describe()
	switch {
	case !r.open:
		return errLocked
	case description.KeySize == 0:
		return status.Errorf(codes.FailedPrecondition, "the volume of this node is of the kind %s, which has no keys", description.Kind)
	case data && description.Kind != storage.LUKS:
		return status.Error(codes.FailedPrecondition, volume.ErrFixedKey.Error())
	}
	if recipient != "" {
		if err := recovery.Recipient(recipient); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return nil
}

// needCUK sees to it that the room knows the CUK.
func (r *Room) needCUK(ctx context.Context) error {
	if r.cuk != nil {
		return nil
	}
	if r.wantsCUK() {
		cuk, err := r.unsealCUK(ctx, r.volume())
		if err == nil {
			r.cuk = cuk
			return nil
		}
		if !errors.Is(err, errNoCUK) {
			return status.Errorf(codes.FailedPrecondition, "the cluster's half of the key is not known, and the TPM does not give it: %v: open the volume anew by the recovery key (`reeve node seal`, `reeve node unlock`), and say it again", err)
		}
	}
	return status.Error(codes.FailedPrecondition, "the cluster's half of the key is not known, since the volume was open already when reeved was started: open it anew (`reeve node seal`, `reeve node unlock`), and say it again")
}

// rotateRecipient has the recovery file be for another recovery key.
func (r *Room) rotateRecipient(ctx context.Context, recipient string) error {
	data, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk})
	if err != nil {
		return err
	}
	defer data.Destroy()
	if err := r.take(checkpoint.RotateBegin, func() error {
		return r.save(ctx, func(c *seal.Configuration) { c.RecoveryRecipient = recipient })
	}); err != nil {
		return err
	}
	return r.take(checkpoint.RotateSources, func() error { return r.writeRecovery(r.configuration.NUK, r.cuk, data) })
}

// rotate puts another NUK, and another CUK or data key, in the place of the present ones.
func (r *Room) rotate(ctx context.Context, withCUK, withData bool) (err error) {
	old, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.cuk})
	if err != nil {
		return err
	}
	defer old.Destroy()
	cuk, data := r.cuk, old
	if withCUK {
		if cuk, err = keys.NewSecret(keys.Size); err != nil {
			return err
		}
		defer func() {
			if cuk != r.cuk {
				cuk.Destroy()
			}
		}()
	}
	if withData {
		if data, err = keys.NewSecret(r.kind.Describe().KeySize); err != nil {
			return err
		}
		defer data.Destroy()
	}
	nuk, err := keys.NewSecret(keys.Size)
	if err != nil {
		return err
	}
	if err := r.take(checkpoint.RotateBegin, func() error {
		return r.save(ctx, func(c *seal.Configuration) { c.NextNUK = nuk })
	}); err != nil {
		nuk.Destroy()
		return err
	}
	if err := r.take(checkpoint.RotateWrap, func() error { return r.wrapped.Add(r.volume(), keys.Halves{NUK: nuk, CUK: cuk}, data) }); err != nil {
		return err
	}
	return r.advance(ctx, old, data, cuk)
}

// advance takes a rotation from the wrapping by the keys that come to its end. Old is the data key of before, nil if it is not known, and then it is not being
// rotated. At every step the recovery file alone opens the volume, with the wrapped key as it is then or by the data key in it.
func (r *Room) advance(ctx context.Context, old, data, cuk *keys.Secret) error {
	nuk := r.configuration.NextNUK
	if old != nil && !old.Equal(data) {
		if err := r.take(checkpoint.RotateSources, func() error { return r.writeRecovery(r.configuration.NUK, cuk, data) }); err != nil {
			return err
		}
		if err := r.take(checkpoint.RotateWrap, func() error { return r.kind.Rotate(ctx, old, data) }); err != nil {
			return err
		}
	}
	if err := r.take(checkpoint.RotateSources, func() error { return r.writeRecovery(nuk, cuk, data) }); err != nil {
		return err
	}
	if r.wantsCUK() {
		if f, err := r.readCUK(r.volume()); err != nil || f.ID != cuk.ID() || r.stale {
			if err := r.take(checkpoint.RotateSources, func() error { return r.writeCUK(ctx, cuk, nil) }); err != nil {
				return err
			}
			r.stale = false
		}
	}
	return r.endRotation(ctx, nuk, cuk)
}

// endRotation has these halves be the only ones.
func (r *Room) endRotation(ctx context.Context, nuk, cuk *keys.Secret) error {
	former, next, formerCUK := r.configuration.NUK, r.configuration.NextNUK, r.cuk
	if err := r.take(checkpoint.RotateEnd, func() error {
		return r.save(ctx, func(c *seal.Configuration) { c.NUK, c.NextNUK = nuk, nil })
	}); err != nil {
		return err
	}
	r.cuk = cuk
	for _, secret := range []*keys.Secret{former, next} {
		if secret != nuk {
			secret.Destroy()
		}
	}
	if formerCUK != cuk {
		formerCUK.Destroy()
	}
	return r.take(checkpoint.RotateEnd, func() error { return r.wrapped.Keep(r.volume(), keys.Halves{NUK: nuk, CUK: cuk}) })
}
