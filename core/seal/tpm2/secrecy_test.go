package tpm2_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

// Nothing of the secret passes between processor and TPM in the clear.
func TestNothingInTheClear(t *testing.T) {
	tpm := tpmtest.Start(t)
	var mu sync.Mutex
	var passed bytes.Buffer
	line := tpm.NewSocket(func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		answer, err := ask(command)
		mu.Lock()
		defer mu.Unlock()
		passed.Write(command)
		passed.Write(answer)
		return answer, err
	})
	s := tpm2.New(tpm2.Config{Device: line.Path})
	for range 20 {
		secret, content := secretOf(t, keys.Size)
		form, err := s.Seal(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		unseals(t, s, form, secret)
		mu.Lock()
		if _, private := parts(t, form); !bytes.Contains(passed.Bytes(), private) {
			t.Fatal("the line was not listened to")
		}
		for i := range keys.Size - 4 {
			if bytes.Contains(passed.Bytes(), content[i:i+5]) {
				t.Errorf("bytes %d to %d of the secret passed in the clear", i, i+5)
			}
		}
		passed.Reset()
		mu.Unlock()
	}
}

// Whatever byte of an answer is changed on the way, there is the secret or an error, and never another secret.
func TestChangedOnTheWay(t *testing.T) {
	t.Parallel()
	tpm := tpmtest.Start(t)
	line := tpm.NewSocket(tpmtest.Faithful)
	patient, s := tpm2.New(tpm2.Config{Device: tpm.Socket()}), tpm2.New(tpm2.Config{Device: line.Path, Timeout: 5 * time.Second})
	form, secret := sealed(t, patient)
	// The storage key comes with much that nobody uses. A register is read only to tell what changed.
	for code, step := range map[gotpm.TPMCC]int{gotpm.TPMCCCreatePrimary: 7, gotpm.TPMCCLoad: 2, gotpm.TPMCCStartAuthSession: 2, gotpm.TPMCCPolicyPCR: 1, gotpm.TPMCCUnseal: 1} {
		flips, refusals := 0, 0
		for i, size := 0, 1; i < size; i += step {
			if i >= 2 && i < 6 { // a size that is wrong is another test's
				continue
			}
			line.Set(of(code, changed(func(answer []byte) []byte {
				if i < len(answer) { // it may be a refusal, after a retry
					size = max(size, len(answer))
					answer[i] ^= 1
				}
				return answer
			})))
			got, err := s.Unseal(t.Context(), form)
			flips++
			if err != nil {
				refusals++
			}
			if (got == nil) == (err == nil) || err == nil && !got.Equal(secret) {
				t.Errorf("%#x, byte %d: another secret, or none and no error: %v", uint32(code), i, err)
			}
			if code == gotpm.TPMCCUnseal && err == nil {
				t.Errorf("byte %d of the answer with the secret may be changed", i)
			}
			got.Destroy()
		}
		if flips < 6 || refusals < flips/3 {
			t.Errorf("%#x: of %d changes %d were refused", uint32(code), flips, refusals)
		}
	}
	// And on the way there: a command that was changed is not carried out, or is refused by the TPM.
	line.Set(of(gotpm.TPMCCUnseal, func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		command[len(command)-1] ^= 1
		return ask(command)
	}))
	if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrUnavailable) {
		t.Errorf("an authorization that was changed: %v, %v", got, err)
	}
	line.Set(tpmtest.Faithful)
	unseals(t, patient, form, secret)
}

// Somebody between processor and TPM who puts a key of his own in the place of the storage key would read the session. That key is known to be another's.
func TestForeignStorageKey(t *testing.T) {
	tpm, his := tpmtest.Start(t), tpmtest.Start(t)
	line := tpm.NewSocket(tpmtest.Faithful)
	s := tpm2.New(tpm2.Config{Device: line.Path})
	form, secret := sealed(t, s)
	sessions := 0
	line.Set(func(_ context.Context, command []byte, ask ask) ([]byte, error) {
		switch tpmtest.CommandCode(command) {
		case gotpm.TPMCCCreatePrimary:
			var answer []byte
			his.Do(func(tpm transport.TPM) (err error) { answer, err = tpm.Send(command); return err })
			return answer, nil
		case gotpm.TPMCCStartAuthSession:
			sessions++
		}
		return ask(command)
	})
	if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrOtherTPM) || sessions != 0 {
		t.Errorf("unsealed %v, %v, after %d sessions", got, err, sessions)
	}
	line.Set(tpmtest.Faithful)
	unseals(t, s, form, secret)
}

// Whoever puts a key of his own in the place of the storage key while something is sealed would get the secret. That key is known to be another's, once the sealer
// has met the TPM's: because it sealed by it, because it unsealed by it, or because it found it to be the recorded one and a register kept the secret back.
func TestForeignStorageKeyAtSealing(t *testing.T) {
	tpm, his := tpmtest.Start(t), tpmtest.Start(t)
	form, secret := sealed(t, tpm2.New(tpm2.Config{Device: tpm.Socket()}))
	between := tpm.NewSocket(tpmtest.Faithful)
	for _, test := range []struct {
		name string
		meet func(t *testing.T, s *tpm2.Sealer)
		err  error
	}{
		{"sealed before", func(t *testing.T, s *tpm2.Sealer) { sealed(t, s) }, tpm2.ErrStorageKey},
		{"unsealed before", func(t *testing.T, s *tpm2.Sealer) { unseals(t, s, form, secret) }, tpm2.ErrStorageKey},
		// Nothing tells the first from the right one: that is the limit, which the documentation names.
		{"first use", func(*testing.T, *tpm2.Sealer) {}, nil},
		{"another one's before", func(t *testing.T, s *tpm2.Sealer) {
			between.Set(everything(his))
			if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrOtherTPM) {
				t.Errorf("unsealed %v, %v", got, err)
			}
		}, nil},
		{"kept back before", func(t *testing.T, s *tpm2.Sealer) { // Last, since the register stays as it is.
			tpm.Extend(7)
			if got, err := s.Unseal(t.Context(), form); got != nil || !errors.Is(err, tpm2.ErrChanged) {
				t.Errorf("unsealed %v, %v", got, err)
			}
		}, tpm2.ErrStorageKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			between.Set(tpmtest.Faithful)
			s := tpm2.New(tpm2.Config{Device: between.Path})
			test.meet(t, s)
			listening := everything(his)
			sessions := 0
			between.Set(func(ctx context.Context, command []byte, ask ask) ([]byte, error) {
				if tpmtest.CommandCode(command) == gotpm.TPMCCStartAuthSession {
					sessions++
				}
				return listening(ctx, command, ask)
			})
			got, err := s.Seal(t.Context(), secret)
			if !errors.Is(err, test.err) || (got == nil) != (test.err != nil) {
				t.Fatalf("sealed %s, %v", got, err)
			}
			if test.err == nil {
				return
			}
			if sessions != 0 {
				t.Errorf("%d sessions were begun with a foreign key", sessions)
			}
			between.Set(tpmtest.Faithful)
			again, secret := sealed(t, s)
			unseals(t, s, again, secret)
		})
	}
}

// everything is the Behaviour of a line on which another TPM answers.
func everything(his *tpmtest.TPM) tpmtest.Behaviour {
	return func(_ context.Context, command []byte, _ ask) (answer []byte, err error) {
		his.Do(func(tpm transport.TPM) (err error) { answer, err = tpm.Send(command); return err })
		return answer, nil
	}
}

// After a seal and an unseal, the secret is nowhere in this process's memory but in the secrets that hold it.
func TestNothingStaysInMemory(t *testing.T) {
	tpm := tpmtest.Start(t)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	secret, err := keys.NewSecret(keys.Size)
	if err != nil {
		t.Fatal(err)
	}
	// What is looked for is known inverted, and so is where it is looked at: a search has its pattern in the processor's wide registers, and a signal that comes
	// while it goes on (the runtime's own, to preempt it) has the kernel write those to a stack.
	inverted, window := make([]byte, keys.Size), mapping(t, 1<<20)
	if err := secret.Use(func(content []byte) error {
		for i, b := range content {
			inverted[i] = ^b
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	form, err := s.Seal(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		unseals(t, s, form, secret)
	}
	found := occurrences(t, inverted, window)
	if len(found) != 2 { // the halves of the secret itself, which show that they would be found
		t.Errorf("halves of the secret are in memory %d times: %v", len(found), found)
	}
	secret.Destroy()
	if found := occurrences(t, inverted, window); len(found) != 0 {
		t.Errorf("the secret stays in memory: %v", found)
	}
}

// mapping is memory that the garbage collector neither moves nor copies.
func mapping(t *testing.T, size int) []byte {
	t.Helper()
	result, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(result) })
	return result
}

// occurrences are where in this process's memory a half of what is wanted lies, but for the window through which it is looked at. What is wanted is given inverted.
func occurrences(t *testing.T, inverted, window []byte) []string {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Skipf("cannot run: the process may not read its own memory: %v", err)
	}
	defer memory.Close()
	half := len(inverted) / 2
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&window[0])), len(window)/8)
	var found []string
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		if to-from > 1<<30 { // what a race detector has only reserved
			continue
		}
		for at := from; at < to; at += uintptr(len(window) - half) {
			n, err := memory.ReadAt(window[:min(uintptr(len(window)), to-at)], int64(at))
			if err != nil && n == 0 {
				break
			}
			// A word at a time: no register holds as much as a half.
			for i := range words {
				words[i] = ^words[i]
			}
			for _, part := range [][]byte{inverted[:half], inverted[half:]} {
				for next := 0; ; next++ {
					i := bytes.Index(window[next:n], part)
					if i < 0 {
						break
					}
					next += i
					if place := at + uintptr(next); !inside(place, window) {
						found = append(found, fmt.Sprintf("%#x in %s", place, lines.Text()))
					}
				}
			}
			clear(window)
		}
	}
	return found
}

// BenchmarkUnseal is a whole unseal, by a TPM that computes as fast as this machine.
func BenchmarkUnseal(b *testing.B) {
	tpm := tpmtest.Start(b)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	form, secret := sealed(b, s)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		unseals(b, s, form, secret)
		took = append(took, time.Since(began))
	}
	report(b, took)
}

// BenchmarkSeal is a whole seal.
func BenchmarkSeal(b *testing.B) {
	tpm := tpmtest.Start(b)
	s := tpm2.New(tpm2.Config{Device: tpm.Socket()})
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		sealed(b, s)
		took = append(took, time.Since(began))
	}
	report(b, took)
}
