package unseal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// rotations are all that may be asked for.
var rotations = map[string]*nodev1.RotateKeysRequest{
	"both": {}, "nuk": {Nuk: true}, "cuk": {Cuk: true}, "data": {DataKey: true}, "all": {Nuk: true, Cuk: true, DataKey: true},
}

func TestRotate(t *testing.T) {
	for name, request := range rotations {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, directory(t), storage.LUKS, true)
			b.up(t)
			files := func() []string {
				var read []string
				for _, path := range []string{b.layout.Configuration(), b.layout.VolumeKey(), b.layout.Recovery(), b.layout.CUK()} {
					content, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					read = append(read, string(content))
				}
				return append(read, string(b.disk.key))
			}
			before, old := files(), b.recovered(t)
			dry := &nodev1.RotateKeysRequest{Nuk: request.Nuk, Cuk: request.Cuk, DataKey: request.DataKey, DryRun: true}
			if _, err := b.room.RotateKeys(t.Context(), dry); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(files(), before) {
				t.Error("a dry run changes something")
			}
			if _, err := b.room.RotateKeys(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			after := files()
			for i, want := range []bool{true, true, true, request.Cuk || !request.Nuk && !request.DataKey, request.DataKey} {
				if (after[i] != before[i]) != want {
					t.Errorf("file %d changed: %t, want %t", i, !want, want)
				}
			}
			// What the node saves later does not bring the former keys back.
			if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase = seal.Formed }); err != nil {
				t.Fatal(err)
			}
			b.reboot(t)
			b.up(t)
			b.tpm.set(func(f *fakeTPM) { f.register++ })
			b.reboot(t)
			if err := b.start(t); err != nil {
				t.Fatal(err)
			}
			o := b.open()
			defer o.end()
			if request.DataKey {
				if _, err := b.unlock(t, old); status.Code(err) != codes.InvalidArgument {
					t.Errorf("the former recovery file: %v", err)
				}
			}
			if _, err := b.unlock(t, b.recovered(t)); err != nil {
				t.Fatal(err)
			}
			if err := o.wait(t); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRotateRecipient(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	b.up(t)
	next, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{RecoveryRecipient: "age1nonsense"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{DataKey: true}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the data key of a volume that cannot change it: %v", err)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{RecoveryRecipient: next.Recipient().String()}); err != nil {
		t.Fatal(err)
	}
	file, err := b.room.RecoveryFile()
	if err != nil || file.GetRecipient() != next.Recipient().String() {
		t.Fatalf("%v, %v", file.GetRecipient(), err)
	}
	if _, err := age.Decrypt(bytes.NewReader(file.GetFile()), b.identity); err == nil {
		t.Error("the former recovery key opens it")
	}
	b.identity = next
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
}

// TestStopped stops the node at every step of its first start, of a rotation of each kind and of a recovery, and has it go on by every source.
func TestStopped(t *testing.T) {
	ways := map[string]func(t *testing.T, b *bench){
		"tpm": func(t *testing.T, b *bench) { b.up(t) },
		"recovery": func(t *testing.T, b *bench) {
			b.tpm.set(func(f *fakeTPM) { f.register++ })
			b.byRecovery(t)
			b.heard(t)
		},
	}
	t.Run("first start", func(t *testing.T) {
		reference := newBench(t, directory(t), storage.LUKS, true)
		reference.up(t)
		for n, step := range reference.taken {
			t.Run(fmt.Sprintf("%d %s", n, step), func(t *testing.T) {
				b := newBench(t, directory(t), storage.LUKS, true)
				b.stopBefore(reference.taken, n)
				if err := b.start(t); err != nil {
					t.Fatal(err)
				}
				if err := b.open().wait(t); !errors.Is(err, errStopped) {
					t.Fatalf("%v", err)
				}
				b.stopAt = ""
				b.reboot(t)
				b.up(t)
				b.reboot(t)
				b.up(t)
				if b.disk.formats != 1 {
					t.Errorf("formatted %d times", b.disk.formats)
				}
			})
		}
	})
	for name, request := range rotations {
		offset := -1
		for way, goOn := range inorder.Of(ways) {
			offset++
			t.Run(name+" "+way, func(t *testing.T) {
				reference := newBench(t, directory(t), storage.LUKS, true)
				reference.up(t)
				reference.taken = nil
				if _, err := reference.room.RotateKeys(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				for n := range reference.taken {
					if n%waysApart != offset%waysApart {
						continue
					}
					b := newBench(t, directory(t), storage.LUKS, true)
					node := b.up(t).Configuration.NodeID()
					b.stopBefore(reference.taken, n)
					if _, err := b.room.RotateKeys(t.Context(), request); status.Code(err) != codes.Aborted {
						t.Fatalf("%v", err)
					}
					b.stopAt = ""
					b.reboot(t)
					goOn(t, b)
					if s, _ := b.room.Status().Get(); len(s.GetWeaknesses()) != 0 {
						t.Errorf("started after %d %s: %v", n, reference.taken[n], s.GetWeaknesses())
					}
					if _, err := b.room.RotateKeys(t.Context(), request); err != nil {
						t.Fatalf("again after %d %s: %v", n, reference.taken[n], err)
					}
					b.reboot(t)
					if b.up(t).Configuration.NodeID() != node || b.disk.formats != 1 {
						t.Errorf("after %d %s: another node, or formatted", n, reference.taken[n])
					}
					s, _ := b.room.Status().Get()
					if len(s.GetWeaknesses()) != 0 {
						t.Errorf("after %d %s: %v", n, reference.taken[n], s)
					}
				}
			})
		}
	}
	t.Run("recovery", func(t *testing.T) {
		broken := func(t *testing.T) *bench {
			b := newBench(t, directory(t), storage.LUKS, true)
			b.up(t)
			b.reboot(t)
			b.tpm.set(func(f *fakeTPM) { f.register++ })
			b.taken = nil
			return b
		}
		reference := broken(t)
		reference.byRecovery(t)
		reference.heard(t)
		for n, step := range reference.taken {
			t.Run(fmt.Sprintf("%d %s", n, step), func(t *testing.T) {
				b := broken(t)
				b.stopBefore(reference.taken, n)
				if err := b.start(t); err != nil {
					t.Fatal(err)
				}
				o := b.open()
				_, _ = b.unlock(t, b.recovered(t))
				if o.end(); o.err == nil {
					_ = b.room.Allow(t.Context(), nil)
				}
				b.stopAt = ""
				b.reboot(t)
				b.byRecovery(t)
				b.heard(t)
				b.reboot(t)
				b.up(t)
				if b.disk.formats != 1 {
					t.Errorf("formatted %d times", b.disk.formats)
				}
			})
		}
	})
}

// byRecovery starts a core and opens its volume by the recovery key, unless it opens by itself.
func (b *bench) byRecovery(t T) {
	t.Helper()
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	b.until(t, "opens or waits", func(s *clusterv1.StorageStatus) bool { return s.GetState() == isOpen || s.GetProblem() != "" })
	if s, _ := b.room.Status().Get(); s.GetState() != isOpen {
		if _, err := b.unlock(t, b.recovered(t)); err != nil && status.Code(err) != codes.FailedPrecondition {
			t.Fatal(err)
		}
	}
	if err := o.wait(t); err != nil {
		t.Fatalf("open: %v", err)
	}
}

// stopBefore stops the room before the n-th of some steps.
func (b *bench) stopBefore(steps []checkpoint.Step, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopAt, b.stopIn = steps[n], 0
	for _, step := range steps[:n+1] {
		if step == steps[n] {
			b.stopIn++
		}
	}
}
