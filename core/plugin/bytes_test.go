package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
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
			if err := swap(node.storedFile(digest)); err != nil {
				t.Fatal(err)
			}
			var missing *store.MissingError
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
				path := node.storedFile(digest)
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
				var missing *store.MissingError
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
