package tpm2

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/keys"
)

const (
	// defaultDevice is the kernel's TPM with resource manager: several programs share it, and closing it removes what a program left.
	defaultDevice = "/dev/tpmrm0"
	// defaultPCR measures the state of Secure Boot. It changes when others' code may boot, and not when the kernel is updated.
	defaultPCR = 7
	// defaultTimeout is per command. Real TPMs take up to some seconds for a key.
	defaultTimeout = 30 * time.Second
	// maxSecret is the largest secret in one object, in bytes.
	maxSecret = 128
)

// Config says which TPM to use, and how.
type Config struct {
	Log hclog.Logger
	// Device is the device, or the Unix socket of a software TPM; empty means /dev/tpmrm0.
	Device string
	// PCRs are registers of the SHA-256 bank; none means 7.
	PCRs []uint32
	// Timeout is per command; 0 means 30 s.
	Timeout time.Duration
}

// Sealer seals with the TPM. It opens the TPM for each call and keeps nothing in it. Concurrent calls take turns. A Sealer insists on one TPM all its
// life.
type Sealer struct {
	log     hclog.Logger
	device  string
	pcrs    []uint32
	timeout time.Duration
	// turn holds a token while the device is open. That may be longer than a call, if the kernel does not return from a command.
	turn chan struct{}
	// known is the storage key that was used before, if any.
	known known
}

// New returns the sealer. It touches nothing.
func New(config Config) *Sealer {
	s := &Sealer{log: config.Log, device: config.Device, pcrs: slices.Clone(config.PCRs), timeout: config.Timeout, turn: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	if s.device == "" {
		s.device = defaultDevice
	}
	if len(s.pcrs) == 0 {
		s.pcrs = []uint32{defaultPCR}
	}
	slices.Sort(s.pcrs)
	s.pcrs = slices.Compact(s.pcrs)
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	return s
}

// Name implements seal.Sealer: "tpm2".
func (s *Sealer) Name() string { return "tpm2" }

// PCRs returns the sorted registers that it seals to.
func (s *Sealer) PCRs() []uint32 { return slices.Clone(s.pcrs) }

// Seal seals a secret of at most 128 bytes to the current values of the registers.
func (s *Sealer) Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error) {
	return s.SealFor(ctx, secret, nil)
}

// SealFor seals a secret to the given values, and to the current values of the other registers. ErrStorageKey if the TPM has another storage key than
// the one used before.
func (s *Sealer) SealFor(ctx context.Context, secret *keys.Secret, values map[uint32][]byte) (json.RawMessage, error) {
	if size := secret.Len(); size == 0 || size > maxSecret {
		return nil, fmt.Errorf("tpm2: the secret has %[2]d bytes, and a TPM seals 1 to %[1]d", maxSecret, size)
	}
	for _, pcr := range s.pcrs {
		if pcr > maxPCR {
			return nil, fmt.Errorf("tpm2: there is no PCR %d: choose among 0 to %d", pcr, maxPCR)
		}
	}
	for pcr, value := range values {
		if !slices.Contains(s.pcrs, pcr) {
			return nil, fmt.Errorf("tpm2: PCR %d has a predicted value, but this node seals to the PCRs %v", pcr, s.pcrs)
		}
		if len(value) != valueSize {
			return nil, fmt.Errorf("tpm2: the predicted value of PCR %d has %d bytes, a value of the SHA-256 bank has %d", pcr, len(value), valueSize)
		}
	}
	var sealed *blob
	err := s.with(ctx, func(c *connection) error {
		wanted, err := c.wanted(s.pcrs, values)
		if err != nil {
			return err
		}
		sealed, err = c.seal(secret, wanted)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sealed.encode()
}

// Check fails with ErrUnavailable if the TPM does not answer.
func (s *Sealer) Check(ctx context.Context) error {
	return s.with(ctx, func(*connection) error { return nil })
}

// Unseal returns the secret. ErrUnavailable, ErrChanged (its text names each register that changed), ErrOtherTPM, or ErrDamaged.
func (s *Sealer) Unseal(ctx context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	b, err := decode(sealed)
	if err != nil {
		return nil, err
	}
	var secret *keys.Secret
	err = s.with(ctx, func(c *connection) error {
		var err error
		secret, err = c.unseal(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// with opens the TPM, calls do, and closes it. If the TPM is full of what others or interrupted calls left, it makes space once.
func (s *Sealer) with(ctx context.Context, do func(*connection) error) error {
	c, err := s.open(ctx)
	if err != nil {
		return s.explain(ctx, err)
	}
	defer c.close()
	err = guarded(c, do)
	if full(err) {
		if removed := c.sweep(); removed > 0 {
			s.log.Warn("the TPM was full of what interrupted calls left: removed it", "device", s.device, "removed", removed)
			err = guarded(c, do)
		}
	}
	return s.explain(ctx, err)
}

// guarded recovers from panics of the library that parses the TPM's answers, so that no answer can end the node.
func guarded(c *connection, do func(*connection) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &strangeError{"an answer that cannot be parsed"}
		}
	}()
	return do(c)
}
