package fscrypt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// The core holds the data directory all the time, and lets go of it only to close the volume.
func TestHeldByTheCore(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		// Roles pass through the directory, whatever tests usually do.
		must(t, os.Chmod(n.dir, 0o711))
		held, err := storage.Open(storage.Layout{System: filepath.Dir(n.file()), Data: n.data(), Run: filepath.Join(n.dir, "run")})
		must(t, err)
		t.Cleanup(func() { _ = held.Close() })
		key, _ := newKey(t)
		kind := n.kind(nil)
		mine := storage.Volume{Kind: storage.Fscrypt, ClusterID: "c1", NodeID: "n1"}
		must(t, kind.Format(t.Context(), key))
		wantState(t, kind, volume.Closed)
		for round := range 2 {
			must(t, kind.Open(t.Context(), key))
			must(t, held.HoldData())
			must(t, held.OpenVolume(mine, round == 0))
			if info, err := os.Stat(n.data()); err != nil || info.Mode().Perm() != 0o711 {
				t.Errorf("roles cannot pass: %v, %v", info.Mode(), err)
			}
			var busy *volume.BusyError
			if err := kind.Close(t.Context()); !errors.As(err, &busy) || busy.Users[0].PID != os.Getpid() {
				t.Fatalf("closed though the core holds it: %v", err)
			}
			must(t, held.WithoutData(func() error { return kind.Close(t.Context()) }))
			wantState(t, kind, volume.Closed)
		}
	})
}
