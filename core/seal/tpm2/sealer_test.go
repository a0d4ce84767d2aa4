package tpm2_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

func TestSealAndUnseal(t *testing.T) {
	tpm := tpmtest.Start(t)
	device := tpm.NewDevice(tpmtest.Faithful)
	all := make([]uint32, 24)
	for i := range all {
		all[i] = uint32(23 - i)
	}
	for name, config := range inorder.Of(map[string]tpm2.Config{
		"default PCR": {Device: tpm.Socket()}, "some": {Device: tpm.Socket(), PCRs: []uint32{11, 7, 4, 7}}, "all": {Device: tpm.Socket(), PCRs: all},
		"a device": {Device: device.Path}, "a device, all": {Device: device.Path, PCRs: all},
	}) {
		t.Run(name, func(t *testing.T) {
			s := tpm2.New(config)
			if s.Name() != "tpm2" || !slices.IsSorted(s.PCRs()) {
				t.Errorf("%s, PCRs %v", s.Name(), s.PCRs())
			}
			for _, size := range []int{1, 31, keys.Size, 64, 128} {
				secret, content := secretOf(t, size)
				form, err := s.Seal(t.Context(), secret)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(form, content) && size > 1 {
					t.Error("the sealed form holds the secret")
				}
				unseals(t, s, form, secret)
			}
		})
	}
	if loaded := tpm.Loaded(); loaded != 0 {
		t.Errorf("%d objects and sessions are left in the TPM", loaded)
	}
}

func TestSealRefuses(t *testing.T) {
	// All of it is refused before a TPM is looked for.
	nowhere := t.TempDir() + "/none"
	secret, _ := secretOf(t, keys.Size)
	large, _ := secretOf(t, 129)
	gone, _ := secretOf(t, keys.Size)
	gone.Destroy()
	for name, test := range inorder.Of(map[string]struct {
		secret *keys.Secret
		pcrs   []uint32
		values map[uint32][]byte
		text   string
	}{
		"too large":     {large, nil, nil, "the secret has 129"},
		"destroyed":     {gone, nil, nil, "the secret has 0"},
		"none":          {nil, nil, nil, "the secret has 0"},
		"no such PCR":   {secret, []uint32{7, 24}, nil, "no PCR 24"},
		"another PCR":   {secret, nil, map[uint32][]byte{8: make([]byte, 32)}, "PCR 8 has a predicted value"},
		"a short value": {secret, nil, map[uint32][]byte{7: make([]byte, 20)}, "has 20 bytes"},
	}) {
		t.Run(name, func(t *testing.T) {
			form, err := tpm2.New(tpm2.Config{Device: nowhere, PCRs: test.pcrs}).SealFor(t.Context(), test.secret, test.values)
			if form != nil || err == nil || errors.Is(err, tpm2.ErrUnavailable) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("sealed %s, %v", form, err)
			}
		})
	}
}

// What was sealed is there after the machine was off, and a register that differs is named with both values.
func TestChanged(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket(), PCRs: []uint32{4, 7, 11}})
	form, secret := sealed(t, s)
	before := tpm.Value(7)

	tpm.Extend(8) // not one of them
	unseals(t, s, form, secret)
	tpm.Extend(7)
	got, err := s.Unseal(t.Context(), form)
	var changed *tpm2.ChangedError
	if got != nil || !errors.Is(err, tpm2.ErrChanged) || !errors.As(err, &changed) || len(changed.Changes) != 1 || changed.Changes[0].PCR != 7 {
		t.Fatalf("unsealed %v, %v", got, err)
	}
	for _, part := range []string{"PCR 7 (Secure Boot) was " + hex.EncodeToString(before) + " and is " + hex.EncodeToString(tpmtest.Extended(before)), "reeve node reseal"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	for _, other := range []error{tpm2.ErrUnavailable, tpm2.ErrOtherTPM, tpm2.ErrDamaged} {
		if errors.Is(err, other) {
			t.Errorf("it is also %q", other)
		}
	}
	tpm.Extend(4)
	if _, err := s.Unseal(t.Context(), form); !errors.As(err, &changed) || len(changed.Changes) != 2 || strings.Contains(err.Error(), "PCR 11") {
		t.Errorf("two registers changed: %v", err)
	}
	tpm.Restart()
	unseals(t, s, form, secret)
}

func TestSealFor(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket(), PCRs: []uint32{4, 7}})
	secret, _ := secretOf(t, keys.Size)
	form, err := s.SealFor(t.Context(), secret, map[uint32][]byte{7: tpmtest.Extended(tpm.Value(7))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unseal(t.Context(), form); !errors.Is(err, tpm2.ErrChanged) {
		t.Errorf("before the change: %v", err)
	}
	tpm.Extend(7)
	unseals(t, s, form, secret)
	tpm.Extend(4)
	if _, err := s.Unseal(t.Context(), form); !errors.Is(err, tpm2.ErrChanged) {
		t.Errorf("a register that was not predicted counts: %v", err)
	}
}

func TestOtherTPM(t *testing.T) {
	for name, change := range inorder.Of(map[string]func(*tpmtest.TPM){"another": (*tpmtest.TPM).Replace, "cleared": (*tpmtest.TPM).Clear}) {
		t.Run(name, func(t *testing.T) {
			tpm := tpmtest.Start(t)
			s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
			form, _ := sealed(t, s)
			change(tpm)
			tpm.Extend(7) // it is said all the same that the TPM is another one
			got, err := s.Unseal(t.Context(), form)
			if got != nil || !errors.Is(err, tpm2.ErrOtherTPM) || errors.Is(err, tpm2.ErrChanged) || errors.Is(err, tpm2.ErrUnavailable) || errors.Is(err, tpm2.ErrDamaged) {
				t.Errorf("unsealed %v, %v", got, err)
			}
			// As long as this process runs there is one TPM; the next one takes what it finds.
			other, _ := secretOf(t, keys.Size)
			if form, err := s.Seal(t.Context(), other); form != nil || !errors.Is(err, tpm2.ErrStorageKey) || !strings.Contains(err.Error(), "restart reeved") {
				t.Errorf("sealed %s, %v", form, err)
			}
			s = tpm2.New(tpm2.Config{Device: tpm.Socket()})
			again, secret := sealed(t, s)
			unseals(t, s, again, secret)
			if loaded := tpm.Loaded(); loaded != 0 {
				t.Errorf("%d objects and sessions are left in the TPM", loaded)
			}
		})
	}
}

// The policy is the only way to the secret: whoever has the sealed form and the TPM gets nothing by any other authorization.
func TestPolicyProtects(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	form, want := sealed(t, s)
	public, private := parts(t, form)
	attempts := map[string]struct {
		auth func(transport.TPM) (gotpm.Session, func() error, error)
		code gotpm.TPMRC
	}{
		"no password": {func(transport.TPM) (gotpm.Session, func() error, error) { return gotpm.PasswordAuth(nil), nil, nil }, gotpm.TPMRCAuthUnavailable},
		"an HMAC": {func(transport.TPM) (gotpm.Session, func() error, error) {
			return gotpm.HMAC(gotpm.TPMAlgSHA256, 16), nil, nil
		}, gotpm.TPMRCAuthUnavailable},
		"another policy": {func(tpm transport.TPM) (gotpm.Session, func() error, error) {
			return gotpm.PolicySession(tpm, gotpm.TPMAlgSHA256, 16)
		}, gotpm.TPMRCPolicyFail},
		"the policy of another register": {func(tpm transport.TPM) (gotpm.Session, func() error, error) {
			session, end, err := gotpm.PolicySession(tpm, gotpm.TPMAlgSHA256, 16)
			if err == nil {
				_, err = gotpm.PolicyPCR{PolicySession: session.Handle(), Pcrs: selection(8)}.Execute(tpm)
			}
			return session, end, err
		}, gotpm.TPMRCPolicyFail},
		"the policy": {func(tpm transport.TPM) (gotpm.Session, func() error, error) {
			session, end, err := gotpm.PolicySession(tpm, gotpm.TPMAlgSHA256, 16)
			if err == nil {
				_, err = gotpm.PolicyPCR{PolicySession: session.Handle(), Pcrs: selection(7)}.Execute(tpm)
			}
			return session, end, err
		}, gotpm.TPMRCSuccess},
	}
	for name, attempt := range inorder.Of(attempts) {
		t.Run(name, func(t *testing.T) {
			tpm.Do(func(tpm transport.TPM) error {
				primary, err := gotpm.CreatePrimary{PrimaryHandle: gotpm.TPMRHOwner, InPublic: gotpm.New2B(gotpm.ECCSRKTemplate)}.Execute(tpm)
				if err != nil {
					return err
				}
				defer func() { _, _ = gotpm.FlushContext{FlushHandle: primary.ObjectHandle}.Execute(tpm) }()
				object, err := gotpm.Load{
					ParentHandle: gotpm.AuthHandle{Handle: primary.ObjectHandle, Name: primary.Name, Auth: gotpm.PasswordAuth(nil)},
					InPublic:     gotpm.BytesAs2B[gotpm.TPMTPublic](public), InPrivate: gotpm.TPM2BPrivate{Buffer: private},
				}.Execute(tpm)
				if err != nil {
					return err
				}
				defer func() { _, _ = gotpm.FlushContext{FlushHandle: object.ObjectHandle}.Execute(tpm) }()
				session, end, err := attempt.auth(tpm)
				if err != nil {
					return err
				}
				if end != nil {
					defer func() { _ = end() }()
				}
				answer, err := gotpm.Unseal{ItemHandle: gotpm.AuthHandle{Handle: object.ObjectHandle, Name: object.Name, Auth: session}}.Execute(tpm)
				if attempt.code != gotpm.TPMRCSuccess {
					if !errors.Is(err, attempt.code) {
						return fmt.Errorf("unsealed, or another refusal than %v: %v", attempt.code, err)
					}
					return nil
				}
				// That the others are refused says something only if this one is not.
				return want.Use(func(content []byte) error {
					if err != nil || !bytes.Equal(answer.OutData.Buffer, content) {
						return fmt.Errorf("not unsealed by its own policy: %v", err)
					}
					return nil
				})
			})
		})
	}
}

// Calls at the same time take turns, by one sealer and by several.
func TestConcurrent(t *testing.T) {
	tpm := tpmtest.Start(t)
	one, other := tpm2.New(tpm2.Config{Device: tpm.Socket()}), tpm2.New(tpm2.Config{Device: tpm.Socket()})
	form, want := sealed(t, one)
	var done sync.WaitGroup
	for i := range 12 {
		s := one
		if i%2 == 1 {
			s = other
		}
		done.Go(func() {
			got, err := s.Unseal(t.Context(), form)
			if err != nil || !got.Equal(want) {
				t.Errorf("%v", err)
			}
			got.Destroy()
		})
	}
	done.Wait()
}

// Many calls leave nothing in the TPM, whose room is for three objects and three sessions.
func TestManyTimes(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	secret, _ := secretOf(t, keys.Size)
	files := descriptors(t)
	for i := range manyTimes {
		form, err := s.Seal(t.Context(), secret)
		if err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		unseals(t, s, form, secret)
		if i%10 == 0 {
			if loaded := tpm.Loaded(); loaded != 0 {
				t.Fatalf("time %d: %d objects and sessions are left in the TPM", i, loaded)
			}
		}
	}
	if loaded, now := tpm.Loaded(), descriptors(t); loaded != 0 || now > files {
		t.Errorf("%d objects and sessions are left in the TPM; %d descriptors, %d before", loaded, now, files)
	}
}
