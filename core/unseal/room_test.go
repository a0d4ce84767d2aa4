package unseal_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestPlain(t *testing.T) {
	b := newBench(t, directory(t), storage.Plain, false)
	b.disk = nil
	b.parameters.Volume.Kind = &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}
	b.parameters.GetBootstrap().RecoveryRecipient = ""
	first := b.up(t)
	if first.Configuration.Phase != seal.Forming || b.room.NodeID() != first.Configuration.NodeID() {
		t.Errorf("phase %s, node %q", first.Configuration.Phase, b.room.NodeID())
	}
	s, _ := b.room.Status().Get()
	if s.GetState() != isOpen || s.GetEncrypted() || s.GetRecoverable() || len(s.GetSources()) != 0 || len(s.GetWeaknesses()) != 2 {
		t.Errorf("status %v", s)
	}
	again := b.up(t)
	if again.Configuration.ClusterID != first.Configuration.ClusterID || again.Configuration.NodeID() != first.Configuration.NodeID() {
		t.Error("another node after a restart")
	}
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.room.Unlock(t.Context(), &nodev1.UnlockRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unlock: %v", err)
	}
	b.kill(t)
	if err := os.Remove(b.layout.Volume()); err != nil {
		t.Fatal(err)
	}
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	var missing *storage.VolumeError
	if _, err := b.room.Open(t.Context()); !errors.As(err, &missing) {
		t.Errorf("without volume.json: %v", err)
	}
	b.kill(t)
	if err := os.WriteFile(b.layout.Configuration(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var unreadable *seal.UnreadableError
	if err := b.start(t); !errors.As(err, &unreadable) || unreadable.Path != b.layout.Configuration() {
		t.Errorf("without a configuration: %v", err)
	}
}

func TestFirstStartAndRestartByTPM(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	first := b.up(t)
	if first.Configuration.CUK != nil || first.Configuration.Data != nil {
		t.Error("the CUK and the data key are still in the configuration")
	}
	s, _ := b.room.Status().Get()
	if s.GetState() != isOpen || !s.GetRecoverable() || len(s.GetWeaknesses()) != 0 || s.GetStep() != "" || s.GetProblem() != "" {
		t.Errorf("status %v", s)
	}
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if b.disk.isOpen() {
		t.Fatal("open after Close")
	}
	again := b.up(t)
	if again.Configuration.NodeID() != first.Configuration.NodeID() || b.disk.formats != 1 {
		t.Errorf("node %s, before %s, formatted %d times", again.Configuration.NodeID(), first.Configuration.NodeID(), b.disk.formats)
	}
	s, _ = b.room.Status().Get()
	if got := source(s, "tpm"); got.GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_USED {
		t.Errorf("source %v", got)
	}
	// A core that was killed: no key is needed.
	b.kill(t)
	b.tpm.set(func(f *fakeTPM) { f.unseals = 0 })
	b.up(t)
	if b.tpm.unseals != 1 {
		t.Errorf("the TPM was asked %d times for what is open", b.tpm.unseals)
	}
}

func TestFileWaitsForTheOwner(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	first := b.up(t)
	content := b.recovered(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	s := b.until(t, "waits", func(s *clusterv1.StorageStatus) bool {
		return source(s, "recovery").GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING && s.GetProblem() != ""
	})
	if s.GetState() != locked || source(s, "tpm").GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF || !strings.Contains(s.GetProblem(), "reeve node unlock") {
		t.Errorf("status %v", s)
	}
	if _, err := b.unlock(t, []byte("nonsense")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nonsense: %v", err)
	}
	other := newBench(t, directory(t), storage.Fscrypt, false)
	other.up(t)
	if _, err := b.unlock(t, other.recovered(t)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another node's: %v", err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != locked {
		t.Errorf("after wrong keys: %v", s)
	}
	request := &nodev1.UnlockRequest{Recovered: slices.Clone(content)}
	if _, err := b.room.Unlock(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(request.GetRecovered(), func(b byte) bool { return b != 0 }) {
		t.Error("the request is not zeroed")
	}
	if err := o.wait(t); err != nil || o.opened.Configuration.NodeID() != first.Configuration.NodeID() {
		t.Fatalf("%v", err)
	}
	if _, err := b.unlock(t, content); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unlock of an open volume: %v", err)
	}
}

// A node that is being stopped, or cannot start, lets nobody wait for it.
func TestUnlockOfWhatHasEnded(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	b.up(t)
	content := b.recovered(t)
	b.reboot(t)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetState() == locked && s.GetProblem() != "" })
	o.end()
	if _, err := b.unlock(t, content); status.Code(err) != codes.Unavailable {
		t.Errorf("unlock of a node that is being stopped: %v", err)
	}
	b.byRecovery(t)
}

func TestSealed(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	b.up(t)
	b.disk.set(func(d *fakeDisk) {
		d.busy = &volume.BusyError{Location: "/dev/fake", Users: []volume.User{{PID: 7, Command: "cat", Path: "/x", Use: "open"}}}
	})
	var busy *volume.BusyError
	if err := b.room.Close(t.Context(), true); !errors.As(err, &busy) {
		t.Fatalf("%v", err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != closing || !strings.Contains(s.GetProblem(), "process 7 (cat)") {
		t.Errorf("status %v", s)
	}
	b.disk.set(func(d *fakeDisk) { d.busy = nil })
	if err := b.room.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != sealed {
		t.Errorf("status %v", s)
	}
	b.tpm.set(func(f *fakeTPM) { f.unseals = 0 })
	o := b.open()
	defer o.end()
	b.until(t, "waits", func(s *clusterv1.StorageStatus) bool {
		return source(s, "recovery").GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING
	})
	if b.tpm.unseals != 0 {
		t.Error("a sealed node asks its TPM")
	}
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.room.Status().Get(); s.GetState() != isOpen {
		t.Errorf("status %v", s)
	}
}

// TestSaysWhichFile damages the wrapped key of a node that waits for its owner anyway: it says so before anybody needs the file.
func TestSaysWhichFile(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, false)
	b.up(t)
	recovered := b.recovered(t)
	b.reboot(t)
	if err := errors.Join(os.Remove(b.layout.VolumeKey()), os.WriteFile(b.layout.VolumeKey(), []byte("{"), 0o400)); err != nil {
		t.Fatal(err)
	}
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	names := func(s *clusterv1.StorageStatus) bool {
		return strings.Contains(strings.Join(s.GetWeaknesses(), "\n"), b.layout.VolumeKey())
	}
	b.until(t, "waits, and names the file", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" && names(s) })
	if _, err := b.unlock(t, recovered); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.room.Status().Get(); names(s) {
		t.Errorf("it was written anew: %v", s)
	}
}

// TestStaysSealed stops a core while it seals the node: the next one closes what was left open before it says that the node is sealed, and asks nobody but its owner.
func TestStaysSealed(t *testing.T) {
	b := newBench(t, directory(t), storage.LUKS, true)
	node := b.up(t).Configuration.NodeID()
	b.stopAt, b.stopIn = checkpoint.CloseVolume, 1
	if err := b.room.Close(t.Context(), true); !errors.Is(err, errStopped) {
		t.Fatalf("%v", err)
	}
	b.stopAt = ""
	if !b.disk.isOpen() {
		t.Fatal("the test does not test what it should")
	}
	b.disk.set(func(d *fakeDisk) { d.busy = &volume.BusyError{Location: "/dev/fake"} })
	b.tpm.set(func(f *fakeTPM) { f.unseals = 0 })
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	b.until(t, "says that it is in use", func(s *clusterv1.StorageStatus) bool {
		return s.GetState() == closing && strings.Contains(s.GetProblem(), "busy")
	})
	if _, err := b.unlock(t, b.recovered(t)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("unlocked while it is being closed: %v", err)
	}
	b.disk.set(func(d *fakeDisk) { d.busy = nil })
	b.until(t, "is sealed", func(s *clusterv1.StorageStatus) bool {
		return s.GetState() == sealed && source(s, "recovery").GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING
	})
	if b.disk.isOpen() || b.tpm.unseals != 0 {
		t.Errorf("sealed, and the volume is open (%t), or the TPM was asked (%d)", b.disk.isOpen(), b.tpm.unseals)
	}
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil || o.opened.Configuration.NodeID() != node {
		t.Fatalf("%v", err)
	}
}

func TestTPMTrouble(t *testing.T) {
	trouble := map[string]func(*fakeTPM){
		"changed": func(f *fakeTPM) { f.register = 9 },
		"other":   func(f *fakeTPM) { f.id = "B" },
	}
	for name, change := range inorder.Of(trouble) {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, directory(t), storage.Fscrypt, true)
			first := b.up(t)
			if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase = seal.Member }); err != nil {
				t.Fatal(err)
			}
			b.reboot(t)
			b.tpm.set(change)
			if err := b.start(t); err != nil {
				t.Fatal(err)
			}
			o := b.open()
			defer o.end()
			s := b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" })
			if s.GetState() != locked || !strings.Contains(s.GetProblem(), "reeve node unlock") {
				t.Errorf("status %v", s)
			}
			response, err := b.unlock(t, b.recovered(t))
			if err != nil || len(response.GetNotes()) == 0 {
				t.Fatalf("%v, %v", response, err)
			}
			if err := o.wait(t); err != nil || o.opened.Configuration.NodeID() != first.Configuration.NodeID() || o.opened.Configuration.Phase != seal.Member {
				t.Fatalf("%v", err)
			}
			if s, _ := b.room.Status().Get(); len(s.GetWeaknesses()) != 1 || source(s, "tpm").GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF {
				t.Errorf("before the cluster's policy is heard: %v", s)
			}
			b.heard(t)
			b.reboot(t)
			// Sealed anew to what the machine is now.
			b.up(t)
			if b.disk.formats != 1 {
				t.Errorf("formatted %d times", b.disk.formats)
			}
		})
	}
	t.Run("away", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		b.tpm.set(func(f *fakeTPM) { f.gone = true })
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		o := b.open()
		defer o.end()
		b.until(t, "tries again", func(s *clusterv1.StorageStatus) bool { return strings.Contains(s.GetProblem(), "tried again") })
		b.tpm.set(func(f *fakeTPM) { f.gone = false })
		if err := o.wait(t); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("away for good", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		b.tpm.set(func(f *fakeTPM) { f.gone = true })
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		o := b.open()
		defer o.end()
		b.until(t, "tries again", func(s *clusterv1.StorageStatus) bool { return strings.Contains(s.GetProblem(), "tried again") })
		before, err := os.ReadFile(b.layout.Configuration())
		if err != nil {
			t.Fatal(err)
		}
		response, err := b.unlock(t, b.recovered(t))
		if err != nil || len(response.GetNotes()) == 0 {
			t.Fatalf("%v, %v", response, err)
		}
		if after, err := os.ReadFile(b.layout.Configuration()); err != nil || string(after) != string(before) {
			t.Error("a configuration that may be as good as ever was replaced")
		}
		if err := o.wait(t); err != nil {
			t.Fatal(err)
		}
		b.tpm.set(func(f *fakeTPM) { f.gone = false })
		if _, err := b.room.Reseal(t.Context(), &nodev1.ResealRequest{}); err != nil {
			t.Fatal(err)
		}
		b.reboot(t)
		b.up(t)
	})
}

func TestPlannedChange(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	b.up(t)
	value := make([]byte, 32)
	value[0] = 42
	for name, values := range map[string]map[uint32][]byte{"register": {8: value}, "size": {7: value[:31]}} {
		if _, err := b.room.Reseal(t.Context(), &nodev1.ResealRequest{Pcrs: values}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.room.Reseal(t.Context(), &nodev1.ResealRequest{Pcrs: map[uint32][]byte{7: value}}); err != nil {
		t.Fatal(err)
	}
	// The change may take more than one restart.
	for range 2 {
		b.reboot(t)
		b.up(t)
	}
	b.reboot(t)
	b.tpm.set(func(f *fakeTPM) { f.register = 42 })
	b.up(t)
	b.reboot(t)
	b.up(t)
	// What the former state opens is gone.
	b.reboot(t)
	b.tpm.set(func(f *fakeTPM) { f.register = 0 })
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	s := b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" })
	if s.GetState() != locked {
		t.Errorf("the former state of the machine still opens it: %v", s)
	}
	o.end()
}

func TestAllow(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	b.up(t)
	if err := b.room.Allow(t.Context(), []string{"recovery"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.layout.CUK()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("cuk.json: %v", err)
	}
	s, _ := b.room.Status().Get()
	if source(s, "tpm").GetState() != clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF || len(s.GetWeaknesses()) != 1 {
		t.Errorf("status %v", s)
	}
	b.kill(t)
	b.up(t)
	// The CUK is not known now.
	if err := b.room.Allow(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s, _ = b.room.Status().Get()
	if !strings.Contains(source(s, "tpm").GetReason(), "reeve node seal") {
		t.Errorf("status %v", s)
	}
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("rotate without the CUK: %v", err)
	}
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	b.reboot(t)
	b.up(t)
	// Nothing else would open it.
	if err := os.WriteFile(b.layout.Recovery(), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Allow(t.Context(), []string{"recovery"}); err == nil || !strings.Contains(err.Error(), b.layout.Recovery()) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(b.layout.CUK()); err != nil {
		t.Errorf("cuk.json is gone: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Run("no recovery key", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, false)
		b.parameters.GetBootstrap().RecoveryRecipient = ""
		if err := b.start(t); err == nil || !strings.Contains(err.Error(), "reeve recovery-key new") {
			t.Errorf("%v", err)
		}
	})
	t.Run("consumed", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, false)
		b.up(t)
		b.reboot(t)
		for _, path := range []string{b.layout.Configuration(), b.layout.VolumeKey(), b.layout.Recovery()} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		var consumed *params.ConsumedError
		if _, err := b.room.Open(t.Context()); !errors.As(err, &consumed) || b.disk.formats != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("a volume is there", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, false)
		b.disk.key = []byte("somebody's")
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		var occupied *volume.NotEmptyError
		if _, err := b.room.Open(t.Context()); !errors.As(err, &occupied) || b.disk.formats != 0 {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(b.layout.Configuration()); err == nil {
			t.Error("a node was made")
		}
	})
	t.Run("the volume is gone", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		b.disk.key = nil
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		var gone *storage.VolumeError
		if _, err := b.room.Open(t.Context()); !errors.As(err, &gone) || b.disk.formats != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("another sealer", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		b.tpm = nil
		var other *seal.OtherSealerError
		if err := b.start(t); !errors.As(err, &other) {
			t.Errorf("%v", err)
		}
	})
	t.Run("another kind", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		b.disk.kind = storage.LUKS
		var other *unseal.OtherKindError
		if err := b.start(t); !errors.As(err, &other) {
			t.Errorf("%v", err)
		}
	})
	t.Run("another volume", func(t *testing.T) {
		b := newBench(t, directory(t), storage.Fscrypt, true)
		b.up(t)
		b.reboot(t)
		if err := os.Remove(b.layout.Volume()); err != nil {
			t.Fatal(err)
		}
		if err := b.start(t); err != nil {
			t.Fatal(err)
		}
		var other *storage.VolumeError
		if _, err := b.room.Open(context.Background()); !errors.As(err, &other) || b.disk.isOpen() {
			t.Errorf("%v", err)
		}
	})
}
