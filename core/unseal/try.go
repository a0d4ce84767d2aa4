package unseal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// try opens the volume by what a source has found. It leaves everything as it was if that is not the key.
func (r *Room) try(ctx context.Context, f *found, reading *reading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, _ := r.board.status.Get()
	r.board.state(opening, "")
	var err error
	if f.recovered != nil {
		f.notes, err = r.recover(ctx, f.recovered, reading.result.err)
	} else {
		err = r.openBy(ctx, f.source, f.cuk)
	}
	if err != nil {
		r.board.state(before.GetState(), before.GetProblem())
	}
	return err
}

// openBy opens the volume by its key as NUK and a CUK unwrap it. If it fails, the volume is closed again; where it cannot be, that is for Close.
func (r *Room) openBy(ctx context.Context, from string, cuk *keys.Secret) error {
	kept, err := cuk.Clone()
	if err != nil {
		return err
	}
	var candidates []*keys.Secret
	defer func() { destroyAll(candidates) }()
	err = r.take(checkpoint.OpenDataKey, func() (err error) {
		candidates, err = r.unwrap([]*keys.Secret{r.configuration.NUK, r.configuration.NextNUK}, cuk)
		return err
	})
	var data *keys.Secret
	if err == nil {
		data, err = r.openByOne(ctx, candidates)
	}
	if err != nil {
		kept.Destroy()
		return err
	}
	r.cuk = kept
	if err := r.finish(ctx, from, data); err != nil {
		r.cuk.Destroy()
		r.cuk = nil
		left := r.closeKind(ctx)
		r.mine = left != nil
		return errors.Join(err, left)
	}
	return nil
}

// unwrap returns the data keys that any of the NUKs and the CUK unwrap. While keys are rotated there may be two. It fails if there is none.
func (r *Room) unwrap(nuks []*keys.Secret, cuk *keys.Secret) ([]*keys.Secret, error) {
	var unwrapped []*keys.Secret
	var problem error
	for _, nuk := range nuks {
		if nuk == nil {
			continue
		}
		data, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: nuk, CUK: cuk})
		if err != nil {
			problem = err
			continue
		}
		unwrapped = append(unwrapped, data)
	}
	if len(unwrapped) > 0 {
		return unwrapped, nil
	}
	return nil, problem
}

func destroyAll(secrets []*keys.Secret) {
	for _, secret := range secrets {
		secret.Destroy()
	}
}

// openByOne opens the volume by the first of some keys that is its own, and returns that one. volume.ErrWrongKey if none is.
func (r *Room) openByOne(ctx context.Context, candidates []*keys.Secret) (*keys.Secret, error) {
	for _, key := range candidates {
		err := r.take(checkpoint.OpenVolume, func() error { return r.openMine(ctx, key) })
		if !errors.Is(err, volume.ErrWrongKey) {
			return key, err
		}
	}
	return nil, volume.ErrWrongKey
}

// openMine opens the volume and verifies whose it is.
func (r *Room) openMine(ctx context.Context, key *keys.Secret) error {
	if err := r.openKind(ctx, key); err != nil {
		if errors.Is(err, volume.ErrWrongKey) {
			return err
		}
		return r.passing(err)
	}
	if err := r.config.Storage.OpenVolume(r.mark(), false); err != nil {
		// It is not to lie open, unless it did so before.
		if key != nil {
			err = errors.Join(err, r.closeKind(ctx))
		}
		return &fatalError{err}
	}
	r.mine = true
	return nil
}

// passing marks an error of an encrypted volume as one that may pass: loop devices that are all in use, memory that is short.
func (r *Room) passing(err error) error {
	if !r.encrypted() {
		return &fatalError{err}
	}
	return stateError(err)
}

// The errors of keys that do not open this volume.
var (
	errOtherNode = status.Error(codes.InvalidArgument, "this recovery file is of another node: get the one of this node (`reeve node unlock` takes it from the node itself)")
	errNotOpened = status.Error(codes.InvalidArgument, "this recovery file is of this node and does not open its volume: it is older than the last rotation of the node's keys; use the newest one, which is recovery.age in the node's system directory")
)

// recover opens the volume by what its recovery file held. The configuration may be unknown for a reason; what cannot be read of the node's files is written anew.
func (r *Room) recover(ctx context.Context, recovered *recovery.Recovered, reason error) (notes []string, err error) {
	unknown := r.configuration == nil
	if unknown {
		// The deferred function reads the result of recover: err must not be declared anew.
		var c *seal.Configuration
		if c, err = r.fromRecovered(recovered); err != nil {
			return nil, err
		}
		id, kind := r.id.Load(), r.kind
		r.known(c)
		defer func() {
			if err != nil {
				c.Destroy()
				r.configuration, r.kind = nil, kind
				r.id.Store(id)
			}
		}()
	} else if !recovered.NodeKey.Equal(r.configuration.NodeKey) || recovered.ClusterID != r.configuration.ClusterID {
		return nil, errOtherNode
	}
	state, err := r.kind.State(ctx)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the volume cannot be opened by any key yet: %v", err)
	}
	// Before the volume is open.
	cuk, err := recovered.CUK.Clone()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cuk.Destroy()
		}
	}()
	unwrapped, _ := r.unwrap([]*keys.Secret{r.configuration.NUK, r.configuration.NextNUK, recovered.NUK}, recovered.CUK)
	defer func() { destroyAll(unwrapped) }()
	candidates := append(slices.Clone(unwrapped), recovered.Data)
	var data *keys.Secret
	switch state {
	case volume.Absent:
		return nil, status.Error(codes.FailedPrecondition, r.gone().Error())
	case volume.Open:
		// Roles run on it. It must be this node's.
		if unknown {
			if data, err = r.proven(ctx, candidates); err != nil {
				return nil, err
			}
		}
		if err := r.take(checkpoint.OpenVolume, func() error { return r.openMine(ctx, nil) }); err != nil {
			return nil, err
		}
	default:
		data, err = r.openByOne(ctx, candidates)
		if errors.Is(err, volume.ErrWrongKey) {
			return nil, errNotOpened
		}
		if err != nil {
			return nil, err
		}
	}
	// Before any role runs on it: a later core closes what is to stay sealed.
	if err := r.unsealed(); err != nil {
		return nil, errors.Join(fmt.Errorf("that the volume is sealed no more cannot be kept: %w", err), r.closeKind(ctx))
	}
	r.cuk = cuk
	if unknown {
		// Before anything writes the next recovery file.
		if latest := r.recipient(); recovered.Recipient != "" && latest != "" && latest != recovered.Recipient {
			notes = append(notes, fmt.Sprintf("this recovery file is for the recovery key %q, and what is found on the disk names %q: the next one is for %q; put it right if that is not the one in use "+
				"(`reeve node keys rotate --recovery-recipient`)", recovered.Recipient, latest, recovered.Recipient))
		}
		notes = append(notes, r.keepRecovered(ctx, recovered, data, reason)...)
	}
	if unknown && recovered.Recipient == "" {
		notes = append(notes, fmt.Sprintf("the recovery file was written by an older reeved and does not say for which recovery key; the next one is for %q, which is what is found on the disk, "+
			"where anybody may have written it: compare it with your own, and put it right where it is not (`reeve node keys rotate --recovery-recipient`)", r.configuration.RecoveryRecipient))
	}
	if r.stale && r.wantsCUK() && !r.unkept {
		notes = append(notes, "the TPM did not give the node's keys; they are sealed anew to the present state of this machine")
	}
	return append(notes, r.finishNotes(ctx, data)...), nil
}

// fromRecovered makes a configuration of what a recovery file held. Its phase is one in which the volume was made: what was recovered is never formatted.
func (r *Room) fromRecovered(recovered *recovery.Recovered) (*seal.Configuration, error) {
	description := r.kind.Describe()
	if recovered.Kind != description.Kind {
		return nil, status.Errorf(codes.InvalidArgument, "this recovery file is of a %s volume, and the node's parameters say %s: put them right, or get the file of this node", recovered.Kind, description.Kind)
	}
	if sealer := r.parts.sealer.Name(); recovered.Sealer != sealer {
		// Whoever can change the parameters is not to have the node's secrets lie open.
		return nil, status.Errorf(codes.FailedPrecondition, "the node's secrets were sealed by %q, and the node's parameters say %q: put `seal` in the parameters back to %q, and start reeved again", recovered.Sealer, sealer, recovered.Sealer)
	}
	nuk, err := recovered.NUK.Clone()
	if err != nil {
		return nil, err
	}
	c := &seal.Configuration{
		ClusterID: recovered.ClusterID, NodeKey: slices.Clone(recovered.NodeKey), JoinKey: slices.Clone(recovered.JoinKey), Owner: slices.Clone(recovered.Owner),
		RecoveryRecipient: cmp.Or(recovered.Recipient, r.recipient()), VolumeKind: recovered.Kind, Location: description.Location, Phase: seal.Member, NUK: nuk,
		// Which sources the cluster's policy allows is not known before it is heard again.
		CUKSources: []string{sourceRecovery},
	}
	// Whether there is a member of the store is not known either. That there is none of which the data is here is an error by name then, and never a new one.
	c.StoreFormed, c.Registration = true, recovered.Registration
	head, err := r.store.Head()
	if err != nil {
		head = nil
	}
	if head != nil && (head.NodeID != c.NodeID() || head.ClusterID != c.ClusterID) {
		c.Destroy()
		return nil, errOtherNode
	}
	if len(c.Owner) > 0 {
		// A member's volume. Whoever has the disk can write whatever they like into the head, so nothing that it says is acted on.
		return c, nil
	}
	if err := unfinished(c, recovered, head); err != nil {
		c.Destroy()
		return nil, err
	}
	return c, nil
}

// unfinished makes a configuration that of a node which was not a member yet when its recovery file was written, so that its volume holds nothing: it goes on
// where the head (nil: it cannot be read) says that it was. Which cluster that is in, the recovery file says, unless it is an old one.
func unfinished(c *seal.Configuration, recovered *recovery.Recovered, head *seal.Head) (err error) {
	phase := seal.Registering
	if head != nil {
		phase, c.Owner = head.Phase, head.Owner
		if c.Registration == nil {
			c.Registration = head.Registration
		}
	}
	if c.Registration == nil || phase == seal.Member {
		return nil
	}
	if phase.Before(seal.Registering) {
		phase = seal.Registering
	}
	// The cluster does not have its half yet, and the node no member of the store.
	c.Phase, c.StoreFormed = phase, false
	c.CUK, err = recovered.CUK.Clone()
	return err
}

// recipient is for whom the next recovery file is, where neither the configuration nor what was recovered says it. Whoever has the disk can have it be anybody.
func (r *Room) recipient() string {
	if _, recipient, err := recovery.Read(r.config.Storage.Recovery()); err == nil {
		return recipient
	}
	if head, err := r.store.Head(); err == nil && head != nil {
		return head.RecoveryRecipient
	}
	return params.RecoveryRecipient(r.config.Parameters)
}

// proven returns the key of a volume that is open already. While the data key was being rotated there are two, and with the configuration was lost how far that had
// come. It returns nil for a kind whose key never changes, and errNotOpened if none of them is the key: what else is on the disk is then left as it is.
func (r *Room) proven(ctx context.Context, candidates []*keys.Secret) (*keys.Secret, error) {
	for _, key := range candidates {
		switch err := r.kind.Rotate(ctx, key, key); {
		case err == nil:
			return key, nil
		case errors.Is(err, volume.ErrFixedKey):
			return nil, nil
		case !errors.Is(err, volume.ErrWrongKey):
			return nil, r.passing(err)
		}
	}
	return nil, errNotOpened
}

// keepRecovered seals what was recovered in the place of the configuration that cannot be opened.
//
// If a rotation of the data key was interrupted, the recovery file may hold the key that was to come. Nothing but the configuration knew of that. So the file is
// written anew before the configuration is, by the key that the volume has.
func (r *Room) keepRecovered(ctx context.Context, recovered *recovery.Recovered, data *keys.Secret, reason error) []string {
	var unreadable *seal.UnreadableError
	if errors.As(reason, &unreadable) {
		reason = unreadable.Err
	}
	if errors.Is(reason, tpm2.ErrUnavailable) || errors.Is(reason, context.Canceled) {
		r.unkept = true
	} else if err := r.keepData(recovered, data); err != nil {
		r.unkept = true
		reason = err
	} else if err := r.take(checkpoint.ReplaceConfiguration, func() error { return r.store.Replace(ctx, r.configuration) }); err != nil {
		r.unkept = true
		reason = err
	} else {
		r.stale = true
		return []string{fmt.Sprintf("the sealed configuration could not be opened, and was written anew from the recovery file, sealed to the present state of this machine (it was: %v)", reason)}
	}
	return []string{fmt.Sprintf("the node runs, and its sealed configuration is as it was: %v: after a restart the recovery key is needed again, unless that has passed; `reeve node reseal` tries it now", reason)}
}

// keepData has the recovery file hold the volume's key, if what was recovered is another one.
func (r *Room) keepData(recovered *recovery.Recovered, data *keys.Secret) error {
	if data == nil || data.Equal(recovered.Data) {
		return nil
	}
	return r.take(checkpoint.WriteRecovery, func() error { return r.writeRecovery(r.configuration.NUK, r.cuk, data) })
}

// keep has the configuration on disk be that of the room, where a recovery could not see to it.
func (r *Room) keep(ctx context.Context) error {
	if !r.unkept {
		return nil
	}
	c, err := r.store.Load(ctx)
	switch {
	case err == nil && c != nil:
		// It is as good as ever, and newer than any recovery file.
		r.configuration.Destroy()
		*r.configuration = *c
	case errors.Is(err, tpm2.ErrUnavailable):
		return fmt.Errorf("unseal: the sealed configuration is not changed while the TPM does not answer: %w", err)
	default:
		if err := r.hopeless(err); err != nil {
			return err
		}
		if err := r.take(checkpoint.ReplaceConfiguration, func() error { return r.store.Replace(ctx, r.configuration) }); err != nil {
			return err
		}
		r.stale = true
	}
	r.unkept = false
	return nil
}
