package unseal_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// What may fail of keeping the CUK fails before the volume is open.
func TestTheCUKIsKeptBeforeTheVolumeIsOpen(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	lost := false
	b.before = func(step checkpoint.Step) {
		if step == checkpoint.OpenVolume {
			lost = true
			b.room.LoseCUK()
		}
	}
	o := b.open()
	defer o.end()
	s := b.until(t, "is decided", func(s *clusterv1.StorageStatus) bool {
		return s.GetState() == isOpen || s.GetState() == locked && s.GetProblem() != ""
	})
	if !lost || s.GetState() != isOpen || !b.disk.isOpen() {
		t.Errorf("lost %t, status %v; the volume is open: %t", lost, s, b.disk.isOpen())
	}
}

// A volume whose opening cannot be finished is closed again: its status says that it is locked, and its owner opens it.
func TestWhatIsNotFinishedIsClosed(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	recovered := b.recovered(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	// The room tries the half of the key that it has at once, and then beside the other sources, again and again.
	tries, several := 0, make(chan struct{})
	b.before = func(step checkpoint.Step) {
		if step != checkpoint.OpenDataKey {
			return
		}
		if tries++; tries == 4 {
			close(several)
		}
		if b.disk.isOpen() {
			t.Errorf("the volume is still open when try %d begins", tries)
		}
	}
	b.stop, b.stopAt, b.stopIn = nil, checkpoint.ConsumeParameters, 1
	o := &opening{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		o.opened, o.err = b.room.Open(t.Context())
	}()
	select {
	case <-several:
	case <-o.done:
		t.Fatalf("open: %v", o.err)
	}
	b.until(t, "says what failed", func(s *clusterv1.StorageStatus) bool {
		return s.GetState() == locked && strings.Contains(s.GetProblem(), errStopped.Error())
	})
	// The owner is not kept out by a write that fails.
	if _, err := b.unlock(t, recovered); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != isOpen || !b.disk.isOpen() {
		t.Errorf("status %v", s)
	}
}

// A node that is not a member yet opens its volume by itself when its disk takes writes again, however often that failed before.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	tries := 0
	b.before = func(step checkpoint.Step) {
		if step != checkpoint.ConsumeParameters {
			return
		}
		if tries++; tries == 4 {
			b.stopAt = ""
		}
	}
	b.stop, b.stopAt, b.stopIn = nil, checkpoint.ConsumeParameters, 1
	o := &opening{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		o.opened, o.err = b.room.Open(t.Context())
	}()
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != isOpen || s.GetProblem() != "" || !b.disk.isOpen() {
		t.Errorf("status %v", s)
	}
}

// A volume that somebody uses when it is to be closed again is closed later.
func TestWhatIsNotFinishedIsClosedLater(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.registers(t)
	b.up(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	b.before = func(step checkpoint.Step) {
		if step == checkpoint.OpenVolume {
			b.disk.set(func(d *fakeDisk) { d.busy = &volume.BusyError{Location: "/dev/fake"} })
		}
	}
	b.stop, b.stopAt, b.stopIn = nil, checkpoint.ConsumeParameters, 1
	o := b.open()
	b.until(t, "says what failed", func(s *clusterv1.StorageStatus) bool {
		return s.GetState() == locked && strings.Contains(s.GetProblem(), "is busy")
	})
	o.end()
	b.disk.set(func(d *fakeDisk) { d.busy = nil })
	if err := b.room.Close(t.Context(), false); err != nil || b.disk.isOpen() {
		t.Errorf("the volume is open: %t (%v)", b.disk.isOpen(), err)
	}
}

// A recovery file that does not open the volume leaves nothing in memory: the next one is taken for what it is, and its configuration is kept.
func TestARecoveryThatFailsLeavesNothing(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, false)
	b.up(t)
	content := b.recovered(t)
	b.reboot(t)
	if err := os.Remove(b.layout.Configuration()); err != nil {
		t.Fatal(err)
	}
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" })
	b.disk.set(func(d *fakeDisk) { d.late = errors.New("no loop device") })
	if _, err := b.unlock(t, content); err == nil || !strings.Contains(err.Error(), "no loop device") {
		t.Errorf("unlock: %v", err)
	}
	b.disk.set(func(d *fakeDisk) { d.late = nil })
	answer, err := b.unlock(t, content)
	if err != nil || !strings.Contains(strings.Join(answer.GetNotes(), "\n"), "was written anew from the recovery file") {
		t.Errorf("unlock: %v, %v", answer, err)
	}
	if _, err := os.Stat(b.layout.Configuration()); err != nil {
		t.Error(err)
	}
}
