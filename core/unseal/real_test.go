package unseal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// realBench is a machine with a real fscrypt volume on a loop image, and a software TPM if withTPM.
func realBench(t *testing.T, withTPM bool) (*bench, *tpmtest.TPM) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root mounts")
	}
	path, err := os.MkdirTemp("/var/tmp", "unseal")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o711); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, path, storage.Fscrypt, false)
	b.disk = nil
	size := int64(256 << 20)
	b.parameters.Volume.Kind = &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: &size}}}
	var tpm *tpmtest.TPM
	if withTPM {
		tpm = tpmtest.Start(t)
		b.parameters.Seal = &nodev1.Seal{Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{Device: tpm.Socket()}}}
	}
	t.Cleanup(func() {
		b.kill(t)
		// What a test that failed has left.
		_ = unix.Unmount(b.layout.Data, unix.MNT_DETACH)
		_ = unix.Unmount(b.layout.ImageMount(), unix.MNT_DETACH)
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return b, tpm
}

// TestReal takes a node with real parts through its life: made, killed, closed, in another state, rotated, sealed, unlocked.
func TestReal(t *testing.T) {
	b, tpm := realBench(t, true)
	node := b.up(t).Configuration.NodeID()
	secret := bytes.Repeat([]byte("nobody reads this on a closed volume. "), 100)
	file := filepath.Join(b.layout.Data, "secret")
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Update(t.Context(), func(c *seal.Configuration) { c.Phase = seal.Member }); err != nil {
		t.Fatal(err)
	}
	readable := func(want bool) {
		t.Helper()
		content, err := os.ReadFile(file)
		if got := err == nil && bytes.Equal(content, secret); got != want {
			t.Errorf("readable %t, want %t: %v", got, want, err)
		}
	}
	b.kill(t)
	readable(true)
	b.up(t)
	if _, err := b.room.RotateKeys(t.Context(), &nodev1.RotateKeysRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	readable(false)
	image, err := os.Open(b.layout.Image())
	if err != nil {
		t.Fatal(err)
	}
	// It is mapped, since the race detector would look at each of its bytes while it is read.
	content, err := unix.Mmap(int(image.Fd()), 0, 256<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, secret[:38]) {
		t.Error("the closed image can be read")
	}
	if err := errors.Join(unix.Munmap(content), image.Close()); err != nil {
		t.Error(err)
	}
	if b.up(t).Configuration.NodeID() != node {
		t.Error("another node")
	}
	readable(true)
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	tpm.Extend(7)
	if err := b.start(t); err != nil {
		t.Fatal(err)
	}
	o := b.open()
	defer o.end()
	s := b.until(t, "waits", func(s *clusterv1.StorageStatus) bool { return s.GetProblem() != "" })
	if s.GetState() != locked {
		t.Errorf("status %v", s)
	}
	t.Log(s.GetProblem())
	response, err := b.unlock(t, b.recovered(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(response.GetNotes())
	if err := o.wait(t); err != nil {
		t.Fatal(err)
	}
	readable(true)
	b.heard(t)
	// A planned change.
	if _, err := b.room.Reseal(t.Context(), &nodev1.ResealRequest{Pcrs: map[uint32][]byte{7: tpmtest.Extended(tpm.Value(7))}}); err != nil {
		t.Fatal(err)
	}
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	tpm.Extend(7)
	b.up(t)
	readable(true)
	if err := b.room.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	readable(false)
	again := b.open()
	defer again.end()
	if _, err := b.unlock(t, b.recovered(t)); err != nil {
		t.Fatal(err)
	}
	if err := again.wait(t); err != nil {
		t.Fatal(err)
	}
	readable(true)
	if err := b.room.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}
