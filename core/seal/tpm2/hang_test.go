package tpm2_test

import (
	"context"
	"errors"
	"testing"
	"time"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

// A device from which the kernel does not come back is left at once, and only one call at a time waits for it.
func TestDeviceStuck(t *testing.T) {
	tpm := tpmtest.Start(t)
	line := tpm.NewDevice(tpmtest.Faithful)
	s := tpm2.New(tpm2.Config{Device: line.Path, Timeout: patience})
	form, secret := sealed(t, s)
	files := descriptors(t)
	answered := make(chan struct{}, 16)
	line.Set(func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		defer func() { answered <- struct{}{} }()
		return ask(command)
	})
	line.Stick()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), hasty)
		if got, err := s.Unseal(ctx, form); got != nil || !errors.Is(err, tpm2.ErrUnavailable) {
			t.Errorf("unsealed %v, %v", got, err)
		}
		cancel()
	}
	if now := descriptors(t); now > files+2 {
		t.Errorf("%d descriptors, %d before", now, files)
	}
	line.Unstick()
	// The command that was stuck is answered now, to nobody: whoever opens a device anew does not get it, unlike one who opens a terminal.
	<-answered
	line.Set(tpmtest.Faithful)
	line.Drain()
	unseals(t, s, form, secret)
	if now := descriptors(t); now > files {
		t.Errorf("%d descriptors, %d before", now, files)
	}
}

func TestContext(t *testing.T) {
	lines(t, func(t *testing.T, tpm *tpmtest.TPM, line *tpmtest.Line) {
		s := tpm2.New(tpm2.Config{Device: line.Path, Timeout: patience})
		form, secret := sealed(t, s)
		asked := make(chan struct{}, 1)
		line.Set(of(gotpm.TPMCCUnseal, func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
			asked <- struct{}{}
			return tpmtest.Silent(ctx, command, ask)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		if got, err := s.Unseal(ctx, form); got != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("unsealed %v, %v", got, err)
		}
		// Also while it waits for another call, and when it was over before it began.
		held := make(chan struct{})
		line.Set(func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
			close(held)
			return tpmtest.Silent(ctx, command, ask)
		})
		first, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Unseal(first, form)
		}()
		<-held
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if got, err := s.Unseal(ctx, form); got != nil || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tpm2.ErrUnavailable) {
			t.Errorf("unsealed %v, %v", got, err)
		}
		end()
		<-done
		if got, err := s.Unseal(first, form); got != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("unsealed %v, %v", got, err)
		}
		line.Set(tpmtest.Faithful)
		line.Drain()
		unseals(t, s, form, secret)
	})
}
