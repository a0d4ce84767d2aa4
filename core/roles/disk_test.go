package roles_test

import (
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
)

// A disk that hangs while something is kept of a role holds up that role. It holds up no other one, and no operator who restarts another one.
func TestADiskThatHangsHoldsUpOneRole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	var hangs atomic.Pointer[chan struct{}]
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		hang := func() (end func()) {
			over := make(chan struct{})
			hangs.Store(&over)
			return func() { hangs.Store(nil); close(over) }
		}
		x.upgraded(t)
		x.get("app").crash()
		x.expect(t, "app", ready, "")
		if x.runs("app") != "1" {
			t.Fatalf("version %q runs", x.runs("app"))
		}
		// That version 2 is in the catalog no more is kept.
		end := hang()
		app := after(of(role("app"), "3"), of(role("app"), "1"))
		x.desire(app, role("other"))
		x.expect(t, "other", ready, "")
		if t.Failed() {
			end()
			return
		}
		before := x.restart(t, "other")
		x.expect(t, "other", ready, "")
		if x.of("other").GetInstanceId() == before || x.runs("app") != "1" {
			t.Errorf("status %v, version %q", x.of("other"), x.runs("app"))
		}
		end()
		x.expect(t, "app", ready, "on trial")
		// A failure is kept. Nothing is shown of it before.
		end = hang()
		x.get("app").crash()
		synctest.Wait()
		x.desire(app, role("other"), role("third"))
		x.expect(t, "third", ready, "")
		x.expect(t, "app", ready, "on trial")
		end()
		synctest.Wait()
		if x.runs("app") != "1" || x.of("app").GetRolledBack().GetVersion() != "3" {
			t.Errorf("status %v", x.of("app"))
		}
	}, kept(dir, "boot"), func(c *roles.Config) {
		roles.SetWriteFile(c, func(path string, content []byte, mode fs.FileMode) error {
			if over := hangs.Load(); over != nil {
				<-*over
			}
			return storage.WriteFile(path, content, mode)
		})
	})
}
