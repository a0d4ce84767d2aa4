package tpm2_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

// hasty is how long a command may take in calls that have to fail, and which fail as well if a working command takes longer; soon, where it is to be answered
// in that time, and is given more if it is not. All others may take longer than
// anything does on a busy machine.
const hasty, soon, patience = 300 * time.Millisecond, 3 * time.Second, 5 * time.Minute

// ask is what a Behaviour asks the TPM by.
type ask = func([]byte) ([]byte, error)

// at is the Behaviour of a TPM that misbehaves from the n-th command on, for as many commands as it says.
func at(n, times int, behaviour tpmtest.Behaviour) tpmtest.Behaviour {
	var count atomic.Int64
	return func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
		if i := int(count.Add(1)); i >= n && i < n+times {
			return behaviour(ctx, command, ask)
		}
		return ask(command)
	}
}

// of is the Behaviour of a TPM that misbehaves at one kind of command.
func of(code gotpm.TPMCC, behaviour tpmtest.Behaviour) tpmtest.Behaviour {
	return func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
		if tpmtest.CommandCode(command) == code {
			return behaviour(ctx, command, ask)
		}
		return ask(command)
	}
}

// always is the Behaviour of a TPM that gives one answer to everything.
func always(answer []byte) tpmtest.Behaviour {
	return func(context.Context, []byte, ask) ([]byte, error) { return answer, nil }
}

// changed is the Behaviour of a line on which the TPM's answers are changed.
func changed(change func(answer []byte) []byte) tpmtest.Behaviour {
	return func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		answer, err := ask(command)
		return change(answer), err
	}
}

// hangUp is the Behaviour of a TPM that goes away before it does anything; late, of one that does the command before.
func hangUp(context.Context, []byte, ask) ([]byte, error) { return nil, tpmtest.ErrHangUp }
func late(_ context.Context, command []byte, ask ask) ([]byte, error) {
	_, _ = ask(command)
	return nil, tpmtest.ErrHangUp
}

// cut is the Behaviour of a TPM that goes away in the middle of an answer.
func cut(_ context.Context, command []byte, ask ask) ([]byte, error) {
	answer, _ := ask(command)
	return answer[:len(answer)-1], tpmtest.ErrHangUp
}

// slow is the Behaviour of a TPM that takes its time.
func slow(takes time.Duration) tpmtest.Behaviour {
	return func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		return ask(command)
	}
}

// after is the Behaviour of a TPM that does nothing before something else has happened.
func after(happened <-chan struct{}) tpmtest.Behaviour {
	return func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
		select {
		case <-happened:
		case <-ctx.Done():
		}
		return ask(command)
	}
}

// lines are a line at a socket and one at a device, to TPMs of their own.
func lines(t *testing.T, run func(t *testing.T, tpm *tpmtest.TPM, line *tpmtest.Line)) {
	for name, open := range inorder.Of(map[string]func(*tpmtest.TPM, tpmtest.Behaviour) *tpmtest.Line{"socket": (*tpmtest.TPM).NewSocket, "device": (*tpmtest.TPM).NewDevice}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tpm := tpmtest.Start(t)
			run(t, tpm, open(tpm, tpmtest.Faithful))
		})
	}
}

func TestFaults(t *testing.T) {
	lines(t, func(t *testing.T, tpm *tpmtest.TPM, line *tpmtest.Line) {
		patient := tpm2.New(tpm2.Config{Device: line.Path, Timeout: patience})
		form, secret := sealed(t, patient)
		givenUp := make(chan struct{})
		for name, test := range map[string]struct {
			behaviour tpmtest.Behaviour
			// text is in the error; empty: it works.
			text string
		}{
			"busy for a while":      {at(1, 5, always(tpmtest.Code(gotpm.TPMRCRetry))), ""},
			"yields for a while":    {at(2, 3, always(tpmtest.Code(gotpm.TPMRCYielded))), ""},
			"tests itself":          {at(1, 4, always(tpmtest.Code(gotpm.TPMRCTesting))), ""},
			"busy for ever":         {always(tpmtest.Code(gotpm.TPMRCRetry)), "TPM_RC_RETRY"},
			"slow":                  {slow(hasty / 4), ""},
			"too slow":              {at(3, 1, after(givenUp)), "no answer within"},
			"locked out":            {always(tpmtest.Code(gotpm.TPMRCLockout)), "until the lockout ends"},
			"broken":                {always(tpmtest.Code(gotpm.TPMRCFailure)), "TPM_RC_FAILURE"},
			"not started":           {always(tpmtest.Code(gotpm.TPMRCInitialize)), "TPM_RC_INITIALIZE"},
			"full":                  {always(tpmtest.Code(gotpm.TPMRCObjectMemory)), "stop the programs that use it"},
			"has a password":        {of(gotpm.TPMCCCreatePrimary, always(tpmtest.Code(gotpm.TPMRCBadAuth+0x900))), "remove the password"},
			"unknown code":          {always(tpmtest.Code(0x1234567)), "TPM2_CreatePrimary"},
			"a TPM 1.2":             {always([]byte{0, 0xc4, 0, 0, 0, 10, 0, 0, 0, 30}), "which TPM 2.0 does not have"},
			"garbage":               {always(bytes.Repeat([]byte("garbage "), 8)), "which TPM 2.0 does not have"},
			"zeros":                 {always(make([]byte, 64)), "which TPM 2.0 does not have"},
			"a size too small":      {always([]byte{0x80, 1, 0, 0, 0, 9, 0, 0, 0, 0}), "claims 9 bytes"},
			"a size too large":      {always([]byte{0x80, 1, 0x7f, 0, 0, 10, 0, 0, 0, 0}), "an answer that claims"},
			"success without more":  {always(tpmtest.Code(gotpm.TPMRCSuccess)), "TPM2_CreatePrimary"},
			"longer than it says":   {changed(func(answer []byte) []byte { return append(answer, answer...) }), "TPM2_"},
			"an answer half":        {at(4, 1, changed(func(answer []byte) []byte { return answer[:len(answer)/2] })), "no answer within"},
			"the answer before":     {of(gotpm.TPMCCUnseal, always(tpmtest.Code(gotpm.TPMRCSuccess))), "TPM2_Unseal"},
			"no rights to policies": {of(gotpm.TPMCCPolicyPCR, always(tpmtest.Code(gotpm.TPMRCLocality))), "TPM2_PolicyPCR"},
		} {
			line.Set(test.behaviour)
			s := patient
			switch test.text {
			case "no answer within":
				s = tpm2.New(tpm2.Config{Device: line.Path, Timeout: hasty})
			case "TPM_RC_RETRY":
				s = tpm2.New(tpm2.Config{Device: line.Path, Timeout: soon})
			}
			got, err := s.Unseal(t.Context(), form)
			// It must have heard that the TPM is busy, for which the time may be short on a busy machine.
			for takes := 2 * soon; test.text == "TPM_RC_RETRY" && err != nil && !strings.Contains(err.Error(), test.text) && takes < patience; takes *= 2 {
				got, err = tpm2.New(tpm2.Config{Device: line.Path, Timeout: takes}).Unseal(t.Context(), form)
			}
			switch {
			case test.text == "":
				if err != nil || !got.Equal(secret) {
					t.Errorf("%s: %v", name, err)
				}
			case got != nil || !errors.Is(err, tpm2.ErrUnavailable) || errors.Is(err, tpm2.ErrChanged) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), line.Path):
				t.Errorf("%s: unsealed %v, %v", name, got, err)
			}
			got.Destroy()
			if name == "too slow" {
				close(givenUp)
			}
			// As soon as the TPM is well it opens what it sealed, whatever was left in it.
			line.Set(tpmtest.Faithful)
			line.Drain()
			unseals(t, patient, form, secret)
		}
	})
}

// A TPM that goes away, hangs or cuts an answer at any command of a seal or an unseal: an error in time, and the next call works.
func TestEveryCommand(t *testing.T) {
	for name, behaviour := range inorder.Of(map[string]tpmtest.Behaviour{"goes away": hangUp, "goes away late": late, "cuts an answer": cut, "hangs": tpmtest.Silent}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tpm := tpmtest.Start(t)
			line := tpm.NewSocket(tpmtest.Faithful)
			timeout := patience // so that nothing but what the TPM does ends a call
			if name == "hangs" {
				timeout = hasty
			}
			patient, s := tpm2.New(tpm2.Config{Device: tpm.Socket(), Timeout: patience}), tpm2.New(tpm2.Config{Device: line.Path, Timeout: timeout})
			form, secret := sealed(t, patient)
			for _, test := range []struct {
				name string
				// needed are the commands until it has what it wants, and all those with which it tidies up.
				needed, all int
				call        func(context.Context) error
			}{
				{"unseal", 5, 8, func(ctx context.Context) error {
					got, err := s.Unseal(ctx, form)
					got.Destroy()
					return err
				}},
				{"seal", 4, 6, func(ctx context.Context) error {
					_, err := s.Seal(ctx, secret)
					return err
				}},
			} {
				for n := 1; n <= test.all; n++ {
					asked := atomic.Int64{}
					misbehaves := at(n, 1, behaviour)
					line.Set(func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
						asked.Add(1)
						return misbehaves(ctx, command, ask)
					})
					err := test.call(t.Context())
					if err == nil && n <= test.needed || err != nil && !errors.Is(err, tpm2.ErrUnavailable) {
						t.Errorf("%s, command %d: %v", test.name, n, err)
					}
					if int(asked.Load()) > n {
						t.Errorf("%s, command %d: %d commands were sent", test.name, n, asked.Load())
					}
					line.Set(tpmtest.Faithful)
					unseals(t, patient, form, secret)
				}
			}
		})
	}
}
