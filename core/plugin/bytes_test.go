package plugin_test

import (
	"bytes"
	gocontext "context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// swaps put another executable in the place of a stored one, as somebody with root's powers could.
func swaps(other []byte) map[string]func(path string) error {
	return map[string]func(path string) error{
		"renamed over": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", other, 0o755), os.Chmod(path+".new", 0o511), os.Rename(path+".new", path))
		},
		"written in place": func(path string) error {
			// As an ordinary user the mode would be in the way.
			if os.Geteuid() != 0 {
				if err := os.Chmod(path, 0o755); err != nil {
					return err
				}
			}
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = file.WriteAt(other, 0)
			return errors.Join(err, file.Close())
		},
		"a link": func(path string) error {
			return errors.Join(os.WriteFile(path+".other", other, 0o755), os.Remove(path), os.Symlink(path+".other", path))
		},
	}
}

// evil is not what the catalog names: it says so in its log, before it does anything else.
var evil = plugintest.Variant{Name: "everything", Before: "exit", Roles: []plugintest.Role{{Name: "one"}}}

// What is swapped between Prepare and Launch does not run.
func TestSwappedExecutableDoesNotRun(t *testing.T) {
	t.Parallel()
	for name, swap := range swaps(executable(t).Bytes(t, evil)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			digest := node.add(t, everything)
			s := spec(digest, everything, plugintest.Configuration{Do: "ready"})
			remit, err := node.launcher.Prepare(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if err := swap(storedFile(filepath.Join(node.dir, "data", "plugins"), digest)); err != nil {
				t.Fatal(err)
			}
			var missing *plugin.MissingError
			if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); !errors.As(err, &missing) {
				t.Errorf("error %v", err)
			}
			node.nothingLeft(t)
		})
	}
}

// What is swapped at any moment of a launch does not run either: the verified bytes do, or nothing.
func TestSwappedExecutableNeverRuns(t *testing.T) {
	t.Parallel()
	const tries = 12 / momentsApart
	for name, swap := range swaps(executable(t).Bytes(t, evil)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t)
			ran := 0
			for try := range tries {
				digest := node.add(t, everything)
				path := storedFile(filepath.Join(node.dir, "data", "plugins"), digest)
				s := spec(digest, everything, plugintest.Configuration{Do: "ready"})
				remit, err := node.launcher.Prepare(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				var swapped sync.WaitGroup
				swapped.Go(func() {
					<-time.NewTimer(time.Duration(try*momentsApart) * time.Millisecond / 2).C
					// The kernel may refuse it, since the file is executed.
					_ = swap(path)
				})
				instance, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere")
				if err == nil {
					ran++
					waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
					err = instance.Stop(t.Context(), time.Second)
				}
				var missing *plugin.MissingError
				if err != nil && !errors.As(err, &missing) {
					t.Errorf("error %v", err)
				}
				swapped.Wait()
				_ = os.Remove(path)
			}
			t.Logf("%d of %d ran", ran, tries)
			node.nothingLeft(t)
			if log, _ := os.ReadFile(filepath.Join(node.dir, "data", "logs", "one.log")); strings.Contains(string(log), "own feet") {
				t.Error("the other executable ran")
			}
		})
	}
}

// A write that is under way has changed the times of the file already, and its content not yet: nothing is verified before it is over.
func TestExecutableThatIsWrittenIsWaitedFor(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user a copy is verified that nobody can write to")
	}
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(storedFile(dir, digest), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		executable, err := store.Open(digest)
		opened <- errors.Join(err, executable.Close())
	}()
	select {
	case err := <-opened:
		t.Errorf("it is verified while somebody writes: %v", err)
		opened <- err
	case <-time.After(50 * time.Millisecond): // long enough to read five bytes
	}
	if _, err := writer.WriteString("HELLO"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	var missing *plugin.MissingError
	if err := <-opened; !errors.As(err, &missing) {
		t.Errorf("what was written is accepted: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// What was handed out stays what it was, whatever becomes of the file, of the store and of other references.
func TestExecutableStaysWhatItWas(t *testing.T) {
	t.Parallel()
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := store.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Close(), other.Close(), os.Remove(storedFile(dir, digest)), store.Close()); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 9)
	if n, err := one.File().ReadAt(content, 0); string(content[:n]) != "hello" {
		t.Errorf("content %q, %v", content[:n], err)
	}
	if _, err := one.File().Write([]byte("HELLO")); err == nil {
		t.Error("it was written")
	}
	if os.Geteuid() != 0 {
		// It is sealed, for its owner too.
		if file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", one.File().Fd()), os.O_RDWR, 0); err == nil {
			t.Error("it was opened for writing")
			_ = file.Close()
		}
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
}

// Many open and close at once, and each has the bytes while it has them.
func TestStoreIsUsedByMany(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	content := bytes.Repeat([]byte("x"), 1<<20)
	digest, err := store.Import(t.Context(), reader(content))
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 50 {
				executable, err := store.Open(digest)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := executable.File().ReadAt(make([]byte, 9), 1<<19); err != nil {
					t.Error(err)
				}
				if err := executable.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Go(func() {
		for range 50 {
			if removed, err := store.Collect(func(string) bool { return false }); err != nil || len(removed) > 0 {
				t.Errorf("collected %v, %v", removed, err)
			}
		}
	})
	users.Wait()
}

func TestRoleCannotTouchItsExecutable(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	instance := node.launch(t, plugintest.Configuration{
		Do: "ready", Try: []string{"read executable", "write executable", "replace executable"}, Children: []string{"group"}, // which is a re-execution
	})
	values := waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY).GetValues()
	for name, value := range values {
		if strings.HasSuffix(name, "-executable") && value == "ok" && (os.Geteuid() == 0 || name != "read-executable") {
			t.Errorf("%s: %s", name, value)
		}
	}
	if len(values) < 4 {
		t.Errorf("values %v", values)
	}
}

// A digest that the catalog's record no longer names does not run, though it was prepared.
func TestLaunchRefusesAnotherDigest(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	s := spec(node.add(t, everything), everything, plugintest.Configuration{Do: "ready"})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	s.Plugin = plugintest.Record(node.add(t, evil), everything)
	var failed *plugin.LaunchError
	if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); !errors.As(err, &failed) || !strings.Contains(err.Error(), "was prepared for") {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

// It runs alone: a process that another test forks meanwhile may have what is imported open for writing until it executes its program, and the store's
// patience with that is over at once by the clock of this test.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dir := openStore(t)
		imported := func(content string) string {
			digest, err := store.Import(gocontext.Background(), strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			return digest
		}
		kept, used, again, old := imported("kept"), imported("used"), imported("again"), imported("old")
		running, err := store.Open(used)
		if err != nil {
			t.Fatal(err)
		}
		collect := func(want ...string) {
			t.Helper()
			removed, err := store.Collect(func(digest string) bool { return digest == kept })
			if err != nil || fmt.Sprint(removed) != fmt.Sprint(want) {
				t.Errorf("removed %v, want %v: %v", removed, want, err)
			}
		}
		collect()
		time.Sleep(50 * time.Minute)
		collect()
		imported("again") // which is stored, and may be what somebody is about to add to the catalog
		fresh := imported("fresh")
		time.Sleep(11 * time.Minute)
		collect(old)
		if err := running.Close(); err != nil {
			t.Fatal(err)
		}
		collect()
		for _, digest := range []string{kept, used, again, fresh} {
			if err := use(store, digest); err != nil {
				t.Error(err)
			}
		}
		collect()
		time.Sleep(2 * time.Hour)
		// Nothing was asked for in the meantime but what is kept.
		if removed, err := store.Collect(func(digest string) bool { return digest == kept }); err != nil || len(removed) != 3 {
			t.Errorf("removed %v, %v", removed, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("entries %v, %v", entries, err)
		}
	})
}

// What an earlier core stored for everybody to read is no longer to be read.
func TestOldStoreIsMigrated(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user the mode stays")
	}
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	path := storedFile(dir, digest)
	if err := errors.Join(os.Chmod(path, 0o555), os.Chown(path, 0, 4711)); err != nil {
		t.Fatal(err)
	}
	next, err := plugin.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := use(next, digest); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o511 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
