package tpm2

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/keys"
)

// Config is which TPM is used, and how.
type Config struct {
	Log hclog.Logger
	// Device is the device, or the Unix socket of a software TPM; empty: /dev/tpmrm0.
	Device string
	// PCRs are the registers of the SHA-256 bank; none: 7.
	PCRs []uint32
	// Timeout is for one command; 0: 30 s.
	Timeout time.Duration
}

// The errors by which the node decides.
var (
	// ErrUnavailable: the TPM does not answer, is not there, or went away. To try again may help.
	ErrUnavailable = errors.New("tpm2: the TPM is not available")
	// ErrChanged: this TPM sealed the secret, and a register has another value now.
	ErrChanged = errors.New("tpm2: the machine is not in the state in which the secret was sealed")
	// ErrOtherTPM: another TPM sealed the secret, or this one was cleared.
	ErrOtherTPM = errors.New("tpm2: the secret was sealed by another TPM")
)

// Sealer seals by the TPM. It opens the TPM for each call, and keeps nothing in it.
type Sealer struct{ config Config }

// New returns the sealer. It touches nothing.
func New(config Config) *Sealer { return &Sealer{config: config} }

// Name implements seal.Sealer: "tpm2".
func (s *Sealer) Name() string { return "tpm2" }

// Seal seals a secret of at most 128 bytes to the present values of the registers.
func (s *Sealer) Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error) {
	return s.SealFor(ctx, secret, nil)
}

// SealFor seals a secret to the present values of the registers, and those given in the place of the present ones.
func (s *Sealer) SealFor(ctx context.Context, secret *keys.Secret, values map[uint32][]byte) (json.RawMessage, error) {
	panic("skeleton")
}

// Unseal returns the secret. ErrUnavailable, ErrChanged (its text names each register that changed), ErrOtherTPM, or an error that says that the sealed form is
// damaged.
func (s *Sealer) Unseal(ctx context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	panic("skeleton")
}

// PCRs are the registers to which it seals, sorted.
func (s *Sealer) PCRs() []uint32 { panic("skeleton") }
