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
	// defaultDevice is the kernel's TPM with its resource manager: several programs use it at a time, and what one forgot goes when it closes the device.
	defaultDevice = "/dev/tpmrm0"
	// defaultPCR measures the state of Secure Boot: it changes when other people's code may boot, and stays when a kernel is updated.
	defaultPCR = 7
	// defaultTimeout is for one command. Real TPMs take up to some seconds for a key.
	defaultTimeout = 30 * time.Second
	// maxSecret is how much a TPM seals in one object.
	maxSecret = 128
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

// Sealer seals by the TPM. It opens the TPM for each call, and keeps nothing in it. Calls at the same time take turns. It seals by one TPM as long as it lives.
type Sealer struct {
	log     hclog.Logger
	device  string
	pcrs    []uint32
	timeout time.Duration
	// turn holds a token while the device is open, which may be longer than a call if the kernel does not give a command back.
	turn chan struct{}
	// known is the name of the storage key that this sealer has met, if it has met one.
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

// PCRs are the registers to which it seals, sorted.
func (s *Sealer) PCRs() []uint32 { return slices.Clone(s.pcrs) }

// Seal seals a secret of at most 128 bytes to the present values of the registers.
func (s *Sealer) Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error) {
	return s.SealFor(ctx, secret, nil)
}

// SealFor seals a secret to the present values of the registers, and those given in the place of the present ones. ErrStorageKey if the TPM has another storage
// key than the one that this sealer has met before.
func (s *Sealer) SealFor(ctx context.Context, secret *keys.Secret, values map[uint32][]byte) (json.RawMessage, error) {
	if size := secret.Len(); size == 0 || size > maxSecret {
		return nil, fmt.Errorf("tpm2: a TPM seals 1 to %d bytes, the secret has %d", maxSecret, size)
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

// with opens the TPM, does something with it, and closes it. Where others, or calls that were cut off, have left the TPM without room, it makes room once.
func (s *Sealer) with(ctx context.Context, do func(*connection) error) error {
	c, err := s.open(ctx)
	if err != nil {
		return s.explain(ctx, err)
	}
	defer c.close()
	err = guarded(c, do)
	if full(err) {
		if removed := c.sweep(); removed > 0 {
			s.log.Warn("the TPM was full of what interrupted calls had left in it: made room", "device", s.device, "removed", removed)
			err = guarded(c, do)
		}
	}
	return s.explain(ctx, err)
}

// guarded does something with the TPM. The library that reads a TPM's answers must not be able to end the node, whatever those are.
func guarded(c *connection, do func(*connection) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &strangeError{"an answer that cannot be read"}
		}
	}()
	return do(c)
}
