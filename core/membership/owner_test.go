package membership

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/seal"
)

// An owner key that the cluster has replaced is kept, so that the former one is worth nothing after a restart either; while it cannot be kept the node
// goes on and tries again.
func TestOwnerIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Member)
		defer b.stop()
		synctest.Wait()
		before, err := b.sealed.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A directory in the way of the file: nothing can be renamed over it.
		aside := path + ".aside"
		if err := errors.Join(os.Rename(path, aside), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
		owner, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		b.identity.Update(func(id *identity.Identity) *identity.Identity {
			next := *id
			next.Owner = owner
			return &next
		})
		synctest.Wait()
		if err := errors.Join(os.RemoveAll(path), os.Rename(aside, path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * rewrite)
		synctest.Wait()
		after, err := b.sealed.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !after.Owner.Equal(owner) || !after.NodeKey.Equal(before.NodeKey) || after.Phase != before.Phase {
			t.Errorf("kept: owner %x, phase %s", after.Owner, after.Phase)
		}
	})
}
