package unseal

import (
	"context"
	"errors"
	"fmt"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Close forgets the keys, closes the volume and proves that it is closed. *volume.BusyError if it is in use: it may be called again. After Close with sealed,
// Open waits for Unlock and asks no other source, in a later core too, until the machine is
// started again. A volume that this room has not opened stays as it is: roles of an earlier core may run on it.
func (r *Room) Close(ctx context.Context, asked bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.board.state(closing, "")
	if asked && r.encrypted() {
		// Whatever becomes of this core, the next one does not open the volume by itself.
		if err := storage.WriteFile(r.config.Storage.Sealed(), nil, 0o600); err != nil {
			r.board.problem(err)
			return err
		}
	}
	r.forget()
	if r.mine {
		if err := r.take(checkpoint.CloseVolume, func() error { return r.closeKind(ctx) }); err != nil {
			r.board.problem(err)
			return err
		}
	}
	r.open, r.mine, r.unkept, r.configuration = false, false, false, nil
	r.refresh()
	if r.sealed = asked && r.encrypted(); r.sealed {
		r.board.state(sealed, r.wasSealed())
	} else {
		r.board.state(locked, "")
	}
	return nil
}

// wasSealed is the problem of a volume that is closed since somebody asked for it.
func (r *Room) wasSealed() string {
	text := "the volume was sealed: `reeve node unlock` opens it with the owner's recovery key"
	if r.parts.tpm != nil {
		text += ", and the TPM is not asked until the machine is started again"
	}
	return text
}

// staySealed has the volume be closed before it is said to be sealed: a core that was stopped while it sealed the node, or while its owner opened it, may have left
// it open, or its key with the kernel. No role runs on it any more, or yet. Where that cannot be proven, it is not claimed.
func (r *Room) staySealed(ctx context.Context) error {
	unproven := ""
	if r.left {
		tell := func(err error) {
			r.board.state(closing, fmt.Sprintf("tried again: %v", err))
		}
		err := patiently(ctx, tell, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.unknowable() {
				return errUnknowable
			}
			switch state, err := r.kind.State(ctx); {
			case err != nil:
				return stateError(err)
			case state == volume.Absent:
				return nil
			}
			// Whoever would unlock it is told to come again, and not kept waiting.
			r.board.update(func(s *clusterv1.StorageStatus) { s.State = closing })
			if err := r.take(checkpoint.CloseVolume, func() error { return r.closeKind(ctx) }); err != nil {
				return stateError(err)
			}
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			unproven = fmt.Sprintf("; THAT IT IS CLOSED IS NOT PROVEN: %v", err)
			r.config.Log.Error("the node is sealed, and what there is of its volume is not known", "error", err)
		default:
			r.left = false
		}
	}
	r.board.state(sealed, r.wasSealed()+unproven)
	return nil
}

// unknowable says that what there is of the volume cannot be found out: a container is known by the node's ID, which not even the head of the configuration says.
func (r *Room) unknowable() bool { return r.NodeID() == "" && r.kind.Describe().Kind == storage.LUKS }

// errUnknowable is of a volume that cannot be looked at.
var errUnknowable = errors.New("which container is this node's cannot be known without its sealed configuration: look at `dmsetup ls` for one that is open")

// closeLeft closes what a core that was killed has left of the volume, up to a state: half open, with its key with the kernel, or open. *volume.BusyError if it is in
// use. It needs no key, and not even the configuration.
func (r *Room) closeLeft(ctx context.Context, upTo volume.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.encrypted() {
		return nil
	}
	if r.unknowable() {
		return errUnknowable
	}
	switch state, err := r.kind.State(ctx); {
	case err != nil:
		return err
	case state == volume.Absent || state > upTo:
		return nil
	}
	err := r.take(checkpoint.CloseVolume, func() error { return r.closeKind(ctx) })
	r.board.update(func(s *clusterv1.StorageStatus) { s.Step = "" })
	return err
}

// forget zeroes the keys.
func (r *Room) forget() {
	r.store.Forget()
	r.cuk.Destroy()
	r.cuk = nil
	if r.configuration != nil {
		r.configuration.Destroy()
	}
}

// closeKind closes the volume, of which the core itself has nothing open meanwhile, and proves it.
func (r *Room) closeKind(ctx context.Context) error {
	err := r.config.Storage.WithoutData(func() error { return r.kind.Close(ctx) })
	if err != nil || !r.kind.Describe().Encrypted {
		return err
	}
	state, err := r.kind.State(ctx)
	if err != nil {
		return fmt.Errorf("that the volume is closed cannot be proven: %w", err)
	}
	if state != volume.Closed {
		return errors.New("the volume can be read after it was closed: end what uses it, and try again")
	}
	return nil
}
