package unseal_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestConfigurationLostAmidRotation loses the sealed configuration, which alone knows that keys were being rotated, at every step of a rotation, stops the recovery that
// follows at every step of its own, and then loses the wrapped data key too. The recovery file as it is then opens the volume.
func TestConfigurationLostAmidRotation(t *testing.T) {
	request := rotations["all"]
	reference := newBench(t, directory(t), storage.LUKS, false)
	reference.up(t)
	reference.taken = nil
	if _, err := reference.room.RotateKeys(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	// lost is a node that was stopped at a step of a rotation and has no configuration any more, and whose roles may still run.
	lost := func(t *testing.T, n int, runs bool) *bench {
		b := newBench(t, directory(t), storage.LUKS, false)
		b.up(t)
		b.stopBefore(reference.taken, n)
		if _, err := b.room.RotateKeys(t.Context(), request); status.Code(err) != codes.Aborted {
			t.Fatalf("%v", err)
		}
		b.stopAt = ""
		if runs {
			b.kill(t)
			b.disk.set(func(d *fakeDisk) { d.busy = &volume.BusyError{Location: "/dev/fake"} })
		} else {
			b.reboot(t)
		}
		if err := os.Remove(b.layout.Configuration()); err != nil {
			t.Fatal(err)
		}
		b.taken = nil
		return b
	}
	for n, step := range reference.taken {
		for _, runs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s, roles run %t", n, step, runs), func(t *testing.T) {
				t.Parallel()
				recovery := lost(t, n, runs)
				recovery.byRecovery(t)
				if !recovery.disk.isOpen() {
					t.Fatal("it is not open")
				}
				for m := range recovery.taken {
					b := lost(t, n, runs)
					b.stopBefore(recovery.taken, m)
					if err := b.start(t); err != nil {
						t.Fatal(err)
					}
					o := b.open()
					_, _ = b.unlock(t, b.recovered(t))
					o.end()
					b.stopAt = ""
					// The recovery to its end, the machine anew, and the wrapped key is gone.
					b.kill(t)
					b.byRecovery(t)
					b.disk.set(func(d *fakeDisk) { d.busy = nil })
					b.reboot(t)
					if err := os.Remove(b.layout.VolumeKey()); err != nil {
						t.Fatal(err)
					}
					b.byRecovery(t)
					if b.disk.formats != 1 {
						t.Errorf("formatted %d times", b.disk.formats)
					}
					if t.Failed() {
						t.Fatalf("stopped before step %d of the recovery, %s", m, recovery.taken[m])
					}
				}
			})
		}
	}
}

// TestFormerRecoveryFileOfAnOpenVolume gives a recovery file of before the last rotation to a node whose volume is open and whose configuration is lost. It is no key of
// the volume, and nothing is written by it.
func TestFormerRecoveryFileOfAnOpenVolume(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.up(t)
	former := b.recovered(t)
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{DataKey: true}); err != nil {
		t.Fatal(err)
	}
	b.kill(t)
	b.disk.set(func(d *fakeDisk) { d.busy = &volume.BusyError{Location: "/dev/fake"} })
	if err := os.Remove(b.layout.Configuration()); err != nil {
		t.Fatal(err)
	}
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	if _, err := b.unlock(t, former); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the former recovery file: %v", err)
	}
	if _, err := os.Stat(b.layout.Configuration()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a configuration was written by it: %v", err)
	}
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
}
