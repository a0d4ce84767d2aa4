package unseal

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// make makes a new node, up to its open volume, or goes on where an earlier attempt was stopped.
func (r *Room) make(ctx context.Context) error {
	return patiently(ctx, func(err error) { r.board.problem(err) }, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.board.state(making, "")
		if r.configuration == nil {
			if err := r.makeConfiguration(ctx); err != nil {
				return err
			}
		}
		for _, step := range r.firstSteps(ctx) {
			if !step.phase.Before(r.configuration.Phase) && step.needed {
				if err := r.take(step.name, step.do); err != nil {
					return err
				}
			}
		}
		r.mine = true
		return r.finish(ctx, "", nil)
	})
}

// firstStep is a step of a node's first start.
type firstStep struct {
	name checkpoint.Step
	// phase is the last one in which it is taken: in a later one it was done.
	phase seal.Phase
	// needed says whether this node takes it at all.
	needed bool
	do     func() error
}

// firstSteps are the steps of a first start from the sealed configuration on, in their order. They say what is done to the configuration that r has by the time
// that they are taken.
func (r *Room) firstSteps(ctx context.Context) []firstStep {
	encrypted := r.encrypted()
	return []firstStep{
		{checkpoint.WrapDataKey, seal.Made, encrypted, func() error {
			return r.wrapped.Replace(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: r.configuration.CUK}, r.configuration.Data)
		}},
		{checkpoint.WriteRecovery, seal.Made, encrypted, func() error {
			return r.writeRecovery(r.configuration.NUK, r.configuration.CUK, r.configuration.Data)
		}},
		{checkpoint.SealCUK, seal.Made, encrypted && r.parts.tpm != nil, func() error { return r.writeCUK(ctx, r.configuration.CUK, nil) }},
		{checkpoint.BeginFormat, seal.Made, true, func() error {
			return r.save(ctx, func(c *seal.Configuration) { c.Phase, c.Location = seal.Formatting, r.kind.Describe().Location })
		}},
		{checkpoint.FormatVolume, seal.Formatting, true, func() error { return r.format(ctx) }},
		{checkpoint.OpenVolume, seal.Formatting, true, func() error { return r.openKind(ctx, r.configuration.Data) }},
		{checkpoint.MarkVolume, seal.Formatting, true, func() error { return r.config.Storage.OpenVolume(r.mark(), true) }},
		{checkpoint.ForgetKeys, seal.Formatting, true, func() error { return r.forgetMade(ctx) }},
	}
}

// makeConfiguration makes the keys of a new node and the ID of its cluster, and seals them.
func (r *Room) makeConfiguration(ctx context.Context) error {
	return r.take(checkpoint.MakeConfiguration, func() error {
		if err := r.checkParameters(); err != nil {
			return err
		}
		consumed, err := r.parts.consumed()
		if err != nil {
			return err
		}
		ticket, err := r.ticket()
		if err != nil {
			return err
		}
		if !r.config.Again {
			if err := consumed.Check(r.config.Parameters, ticket.GetTicketId()); err != nil {
				return err
			}
			if err := r.config.Mark.Check(r.config.Parameters, ticket.GetTicketId()); err != nil {
				return err
			}
		}
		c, err := r.newConfiguration(ticket)
		if err != nil {
			return err
		}
		if err := r.checkTarget(ctx, c.NodeID()); err != nil {
			c.Destroy()
			return err
		}
		// From here on, this is the node that it is, whenever it is stopped.
		if err := r.store.Save(ctx, c); err != nil {
			c.Destroy()
			return err
		}
		r.known(c)
		return nil
	})
}

// ticket reads the ticket of a node that registers; nil for one that makes its cluster.
func (r *Room) ticket() (*clusterv1.TicketText, error) {
	register := r.config.Parameters.GetRegister()
	if register == nil {
		return nil, nil
	}
	return params.Ticket(register)
}

func registrationOf(ticket *clusterv1.TicketText) *seal.Registration {
	return &seal.Registration{TicketID: ticket.GetTicketId(), CAPins: ticket.GetCaPins(), Curators: ticket.GetCurators()}
}

func (r *Room) newConfiguration(ticket *clusterv1.TicketText) (*seal.Configuration, error) {
	description := r.kind.Describe()
	_, node, errNode := ed25519.GenerateKey(rand.Reader)
	_, join, errJoin := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(errNode, errJoin); err != nil {
		return nil, fmt.Errorf("make the node's keys: %w", err)
	}
	var id [16]byte
	// It never fails.
	_, _ = rand.Read(id[:])
	c := &seal.Configuration{
		ClusterID: hex.EncodeToString(id[:]), NodeKey: node, JoinKey: join, Owner: r.config.Parameters.GetBootstrap().GetOwnerPublicKey(), VolumeKind: description.Kind,
		Location: description.Location, Phase: seal.Made,
	}
	if restore := r.config.Restore; restore != nil {
		c.ClusterID, c.Restored = restore.ClusterID, restore.Snapshot
	}
	if ticket != nil {
		secret, err := keys.SecretOf(ticket.GetSecret())
		if err != nil {
			return nil, err
		}
		clear(ticket.Secret)
		c.ClusterID, c.Ticket = ticket.GetClusterId(), secret
		c.Registration = registrationOf(ticket)
	}
	if description.KeySize == 0 {
		return c, nil
	}
	c.RecoveryRecipient = params.RecoveryRecipient(r.config.Parameters)
	for size, secrets := range map[int][]**keys.Secret{keys.Size: {&c.NUK, &c.CUK}, description.KeySize: {&c.Data}} {
		for _, secret := range secrets {
			var err error
			if *secret, err = keys.NewSecret(size); err != nil {
				c.Destroy()
				return nil, err
			}
		}
	}
	return c, nil
}

// checkTarget refuses a place where there is a volume already, before anything of the node is made. What else may be there Format refuses.
func (r *Room) checkTarget(ctx context.Context, nodeID string) error {
	kind := r.parts.kind(nodeID)
	if !r.encrypted() {
		return nil
	}
	state, err := kind.State(ctx)
	if err != nil {
		return err
	}
	if state != volume.Absent {
		return &volume.NotEmptyError{Location: kind.Describe().Location, Found: "a volume, of a node whose sealed configuration is not in " + r.config.Storage.System}
	}
	return nil
}

// format formats the volume, unless an earlier attempt has. It is called in no other phase than formatting.
func (r *Room) format(ctx context.Context) error {
	state, err := r.kind.State(ctx)
	if err != nil {
		return err
	}
	// Whether what is there is what an earlier attempt has made, its key says, and its mark.
	if state != volume.Absent {
		return nil
	}
	return r.kind.Format(ctx, r.configuration.Data)
}

// openKind opens the volume, unless it is open.
func (r *Room) openKind(ctx context.Context, key *keys.Secret) error {
	if err := r.kind.Open(ctx, key); err != nil {
		return err
	}
	return r.config.Storage.HoldData()
}

// mark is what the volume's own file says of it.
func (r *Room) mark() storage.Volume {
	return storage.Volume{Kind: r.configuration.VolumeKind, ClusterID: r.configuration.ClusterID, NodeID: r.configuration.NodeID()}
}

// forgetMade ends the phase in which the volume may be formatted. The node knows the CUK until the volume is closed; one that registers keeps it besides, until
// the cluster has it.
func (r *Room) forgetMade(ctx context.Context) error {
	cuk, data, registers := r.configuration.CUK, r.configuration.Data, r.configuration.Registration != nil
	if registers && cuk != nil {
		var err error
		if cuk, err = cuk.Clone(); err != nil {
			return err
		}
	}
	err := r.save(ctx, func(c *seal.Configuration) {
		c.Data = nil
		if c.Phase = seal.Registering; !registers {
			c.Phase, c.CUK = seal.Forming, nil
		}
	})
	if err != nil {
		if registers {
			cuk.Destroy()
		}
		return err
	}
	data.Destroy()
	r.cuk = cuk
	return nil
}

// writeRecovery writes the recovery file. It verifies that what it has written is there, since nothing else may be.
func (r *Room) writeRecovery(nuk, cuk, data *keys.Secret) error {
	return r.writeRecoveryOf(r.configuration, nuk, cuk, data)
}

// writeRecoveryOf is writeRecovery for a configuration that is about to be kept.
func (r *Room) writeRecoveryOf(c *seal.Configuration, nuk, cuk, data *keys.Secret) error {
	path := r.config.Storage.Recovery()
	recovered := &recovery.Recovered{
		ClusterID: c.ClusterID, NodeKey: c.NodeKey, JoinKey: c.JoinKey, Owner: c.Owner, Registration: c.Registration, Kind: c.VolumeKind,
		Location: r.kind.Describe().Location, Sealer: r.parts.sealer.Name(), NUK: nuk, CUK: cuk, Data: data,
	}
	if err := recovery.Write(path, c.RecoveryRecipient, recovered); err != nil {
		return err
	}
	if _, recipient, err := recovery.Read(path); err != nil || recipient != c.RecoveryRecipient {
		return fmt.Errorf("the recovery file %s is not what was written (recipient %s, want %s): %w", path, recipient, c.RecoveryRecipient, err)
	}
	return nil
}
