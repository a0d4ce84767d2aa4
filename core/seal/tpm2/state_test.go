package tpm2_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

// What others left in a TPM is removed when there is no room, and not before.
func TestFull(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	form, secret := sealed(t, s)
	leave := func(objects, sessions int) {
		tpm.Do(func(tpm transport.TPM) error {
			for range objects {
				if _, err := (gotpm.CreatePrimary{PrimaryHandle: gotpm.TPMRHOwner, InPublic: gotpm.New2B(gotpm.ECCSRKTemplate)}).Execute(tpm); err != nil {
					return err
				}
			}
			for range sessions {
				if _, _, err := gotpm.PolicySession(tpm, gotpm.TPMAlgSHA256, 16); err != nil {
					return err
				}
			}
			return nil
		})
	}
	leave(1, 1)
	unseals(t, s, form, secret)
	if loaded := tpm.Loaded(); loaded != 2 {
		t.Errorf("%d objects and sessions of others are loaded, not 2", loaded)
	}
	leave(2, 0)
	unseals(t, s, form, secret)
	leave(3, 3)
	again, other := sealed(t, s)
	unseals(t, s, again, other)
	leave(0, 3)
	unseals(t, s, form, secret)
	if loaded := tpm.Loaded(); loaded != 0 {
		t.Errorf("%d objects and sessions are loaded", loaded)
	}
}

// A kernel that measures files extends a register all the time, also between the commands of an unseal.
func TestRegistersThatMove(t *testing.T) {
	tpm := tpmtest.Start(t)
	line := tpm.NewSocket(tpmtest.Faithful)
	s := tpm2.New(tpm2.Config{Device: line.Path})
	form, secret := sealed(t, s)
	move := func(pcr uint32, times int) {
		line.Set(of(gotpm.TPMCCUnseal, func(_ context.Context, command []byte, ask ask) ([]byte, error) {
			if times--; times >= 0 {
				if err := tpmtest.Extend(transportOf(ask), pcr); err != nil {
					t.Error(err)
				}
			}
			return ask(command)
		}))
	}
	move(10, 5)
	unseals(t, s, form, secret)
	move(10, 1<<20)
	if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrUnavailable) || !strings.Contains(err.Error(), "keep changing") {
		t.Errorf("unsealed %v, %v", got, err)
	}
	move(7, 1)
	if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrChanged) || !strings.Contains(err.Error(), "PCR 7") {
		t.Errorf("unsealed %v, %v", got, err)
	}
	if loaded := tpm.Loaded(); loaded != 0 {
		t.Errorf("%d objects and sessions are left in the TPM", loaded)
	}
}

// Values that are read in several commands are all of one moment.
func TestRegistersReadTogether(t *testing.T) {
	tpm := tpmtest.Start(t)
	line := tpm.NewSocket(tpmtest.Faithful)
	s := tpm2.New(tpm2.Config{Device: line.Path, PCRs: []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}})
	reads := 0
	line.Set(of(gotpm.TPMCCPCRRead, func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		if reads++; reads == 2 { // between the first eight and the rest
			if err := tpmtest.Extend(transportOf(ask), 7); err != nil {
				t.Error(err)
			}
		}
		return ask(command)
	}))
	form, secret := sealed(t, s)
	unseals(t, s, form, secret)
}

// over is a context of a caller who gives up between two commands, which no line notices.
type over struct {
	context.Context
	now atomic.Bool
}

func (o *over) Done() <-chan struct{} { return nil }

func (o *over) Err() error {
	if o.now.Load() {
		return context.Canceled
	}
	return nil
}

// A call that is given up takes what it loaded out of the TPM all the same.
func TestTidyAfterGivingUp(t *testing.T) {
	tpm := tpmtest.Start(t)
	line := tpm.NewSocket(tpmtest.Faithful)
	s := tpm2.New(tpm2.Config{Device: line.Path})
	form, _ := sealed(t, s)
	for _, code := range []gotpm.TPMCC{gotpm.TPMCCCreatePrimary, gotpm.TPMCCLoad, gotpm.TPMCCStartAuthSession, gotpm.TPMCCPolicyPCR} {
		ctx := &over{Context: context.Background()}
		line.Set(of(code, func(_ context.Context, command []byte, ask ask) ([]byte, error) {
			ctx.now.Store(true)
			return ask(command)
		}))
		if got, err := s.Unseal(ctx, form); got != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("unsealed %v, %v", got, err)
		}
		if loaded := tpm.Loaded(); loaded != 0 {
			t.Errorf("given up at %#x: %d objects and sessions are left in the TPM", uint32(code), loaded)
		}
	}
}

// sender makes a transport of a Behaviour's way to the TPM.
type sender ask

func (s sender) Send(command []byte) ([]byte, error) { return s(command) }

func transportOf(ask ask) transport.TPM { return sender(ask) }
