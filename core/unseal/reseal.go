package unseal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Reseal is what the RPC of the name does. With values that registers will have, the secrets are sealed to the present state of the machine and to the planned
// one: it starts before the change and after it. The first start in the planned state removes what the former one opens.
func (r *Room) Reseal(ctx context.Context, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil, errLocked
	}
	if r.parts.tpm == nil {
		if len(request.GetPcrs()) > 0 {
			return nil, status.Error(codes.InvalidArgument, "the node's secrets are sealed by a file, which knows nothing of registers")
		}
		return &nodev1.ResealResponse{}, nil
	}
	registers := r.parts.tpm.PCRs()
	for _, number := range slices.Sorted(maps.Keys(request.GetPcrs())) {
		if !slices.Contains(registers, number) {
			return nil, status.Errorf(codes.InvalidArgument, "register %d is not one of those to which this node's secrets are sealed (%v): leave it out, or change seal.tpm2.pcrs in the parameters first", number, registers)
		}
		if got := len(request.GetPcrs()[number]); got != sha256.Size {
			return nil, status.Errorf(codes.InvalidArgument, "the value of register %d has %d bytes, and a SHA-256 value has %d", number, got, sha256.Size)
		}
	}
	withCUK := r.encrypted() && r.wantsCUK()
	if withCUK && r.needCUK(ctx) != nil && !there(r.config.Storage.CUK()) {
		// The TPM does not have it, and gets it when it is known: the status says so.
		withCUK = false
	} else if withCUK {
		if err := r.needCUK(ctx); err != nil {
			return nil, err
		}
	}
	if request.GetDryRun() {
		return &nodev1.ResealResponse{Pcrs: registers}, nil
	}
	defer r.refresh()
	if err := r.reseal(ctx, withCUK, request.GetPcrs()); err != nil {
		return nil, status.Errorf(codes.Aborted, "%v: what was sealed before still holds; say it again", err)
	}
	return &nodev1.ResealResponse{Pcrs: registers}, nil
}

// reseal seals the CUK first: a configuration without it waits for the owner, and is of no use in a new state.
func (r *Room) reseal(ctx context.Context, withCUK bool, planned map[uint32][]byte) error {
	if err := r.keep(ctx); err != nil {
		return err
	}
	if withCUK {
		if err := r.take(checkpoint.Reseal, func() error { return r.writeCUK(ctx, r.cuk, planned) }); err != nil {
			return err
		}
		r.stale = false
	}
	return r.take(checkpoint.Reseal, func() error {
		return r.store.Reseal(ctx, func(ctx context.Context, key *keys.Secret) (rawForms, error) {
			return r.configurationForms.sealFor(ctx, key, planned)
		})
	})
}

// Allow takes the sources of the CUK that the cluster's policy allows; none: all. What is not allowed any more is removed from the node.
func (r *Room) Allow(ctx context.Context, sources []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return errLocked
	}
	if !r.encrypted() {
		return nil
	}
	defer r.refresh()
	next := slices.Compact(slices.Sorted(slices.Values(sources)))
	if !slices.Equal(next, r.configuration.CUKSources) {
		if err := r.save(ctx, func(c *seal.Configuration) { c.CUKSources = next }); err != nil {
			return fmt.Errorf("unseal: which sources the cluster's policy allows cannot be kept: %w", err)
		}
	}
	if !r.wantsCUK() {
		return r.dropCUK()
	}
	if there(r.config.Storage.CUK()) && !r.stale || r.cuk == nil {
		return nil
	}
	r.board.source(sourceTPM, idle, "")
	return r.settleCUK(ctx)
}

// dropCUK removes the sealed CUK, once it is certain that the owner's recovery key opens the volume.
func (r *Room) dropCUK() error {
	if !there(r.config.Storage.CUK()) {
		return nil
	}
	path := r.config.Storage.Recovery()
	_, recipient, err := recovery.Read(path)
	if err == nil {
		err = recovery.Check(path)
	}
	if err == nil && recipient != r.configuration.RecoveryRecipient {
		err = errors.New("it is for a former recovery key")
	}
	if err != nil {
		return fmt.Errorf("unseal: the cluster's policy does not allow the source tpm, and the sealed CUK is kept all the same, since nothing else would open the volume: the recovery file %s cannot be used (%w): `reeve node keys rotate` writes it anew", path, err)
	}
	return r.take(checkpoint.SealCUK, r.removeCUK)
}
