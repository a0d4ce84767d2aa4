package roles_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// crash has the instance of a role crash some times, and waits each time until it is back or Failed.
func (x *fixture) crash(t *testing.T, name string, times int) {
	t.Helper()
	for range times {
		synctest.Wait()
		instance := x.get(name)
		if instance == nil {
			t.Fatalf("role %s does not run: %v", name, x.of(name))
		}
		instance.crash()
		pass(31 * time.Second)
	}
}

func TestBudgetIsUsedUp(t *testing.T) {
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("behind", "app"))
		for range roles.DefaultBudgetFailures {
			x.crash(t, "app", 1)
			x.expect(t, "app", ready, "")
		}
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 10 || got.GetBudget() != 10 || got.GetWindow().AsDuration() != 10*time.Minute {
			t.Errorf("failure %v", got)
		}
		x.get("app").end(plugin.Exit{Code: -1, Signal: syscall.SIGSEGV, Lines: []string{"", "no such luck"}})
		x.expect(t, "app", failed, "it failed 11 times within 10m, and 10 are allowed: ended by signal 11 (segmentation fault): no such luck; it is started again by: reeve node role restart node app")
		got := x.of("app")
		want := &clusterv1.Failure{
			Time: got.GetLastFailure().GetTime(), Cause: "ended by signal 11 (segmentation fault): no such luck", Signal: "SIGSEGV",
			Lines: []string{"no such luck"}, Failures: 11, Budget: 10, Window: got.GetLastFailure().GetWindow(), InstanceId: "node/app/12",
		}
		if !proto.Equal(got.GetLastFailure(), want) || got.GetStarted() != nil || got.GetNextTry() != nil {
			t.Errorf("status %v, want the failure %v", got, want)
		}
		// It stays so, whatever is desired of others.
		x.desire(role("app"), role("behind", "app"), role("other"))
		pass(24 * time.Hour)
		x.expect(t, "app", failed, "11 times")
		if begun, _ := f.order(); slices.Index(begun, "app") != 0 || len(begun) != 13 {
			t.Errorf("launched %v", begun)
		}
		x.desire(role("behind", "app"), held(role("app"), "not now"))
		x.expect(t, "app", blocked, "not now")
		x.desire(role("behind", "app"), role("app"))
		x.expect(t, "app", failed, "11 times")
		// What is desired is another thing.
		x.desire(configured(role("app"), "{}", 2))
		x.expect(t, "app", ready, "")
		if x.of("app").GetLastFailure().GetFailures() != 11 || x.of("app").GetStarted() == nil {
			t.Errorf("status %v", x.of("app"))
		}
		x.crash(t, "app", 1)
		x.expect(t, "app", ready, "")
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 1 {
			t.Errorf("failure %v", got)
		}
	})
}

// A role that fails now and then is started again for ever.
func TestBudgetIsOfAWindow(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		for range 20 {
			x.crash(t, "app", 2)
			x.expect(t, "app", ready, "")
			pass(9 * time.Minute)
		}
		x.crash(t, "app", 4)
		x.expect(t, "app", failed, "it failed 4 times within 10m, and 3 are allowed")
	}, budget(3, 0))
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		x.crash(t, "app", 1)
		x.expect(t, "app", failed, "it failed once within 1h, and 0 are allowed")
	}, budget(0, time.Hour))
}

// While the node is short of something, roles fail for that, and it is not theirs.
func TestShortageDoesNotCount(t *testing.T) {
	shortage := ""
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		shortage = "the disk is full"
		x.crash(t, "app", 20)
		x.expect(t, "app", ready, "")
		if got := x.of("app"); got.GetLastFailure().GetFailures() != 0 || got.GetRestarts() != 20 || !strings.HasSuffix(got.GetLastFailure().GetCause(), "; the disk is full") {
			t.Errorf("status %v", got)
		}
		x.get("app").crash()
		x.expect(t, "app", backoff, "the disk is full")
		pass(31 * time.Second)
		shortage = ""
		x.crash(t, "app", 1)
		x.expect(t, "app", ready, "")
		x.crash(t, "app", 1)
		x.expect(t, "app", failed, "it failed 2 times")
	}, budget(1, time.Hour), func(c *roles.Config) { c.Shortage = func() string { return shortage } })
}

func TestNobodysFaultDoesNotCount(t *testing.T) {
	f := newFakes()
	f.stopTime = time.Second
	bubble(t, f, func(t *testing.T, x *fixture) {
		none := func(what string) {
			t.Helper()
			synctest.Wait()
			if got := x.of("app"); got.GetLastFailure() != nil {
				t.Errorf("%s: %v", what, got)
			}
		}
		x.desire(role("store"), role("app", "store"))
		x.expect(t, "app", ready, "")
		x.desire(held(role("store"), "wait"), role("app", "store"))
		pass(5 * time.Second)
		none("stopped")
		x.desire(role("store"), configured(role("app", "store"), "{}", 2))
		pass(5 * time.Second)
		// The instance ends while it is to be stopped.
		x.desire(role("store"), configured(role("app", "store"), "{}", 3))
		synctest.Wait()
		x.get("app").crash()
		pass(5 * time.Second)
		x.expect(t, "app", ready, "")
		none("ended while stopping")
		// It is ended by whoever has just said that it is not to run, and both are seen at the same time.
		x.desire(role("store"), held(role("app", "store"), "wait"))
		pass(5 * time.Second)
		for n := range 20 {
			x.desire(role("store"), configured(role("app", "store"), "{}", uint64(n+4)))
			pass(time.Second)
			x.desire(role("store"), held(role("app", "store"), "wait"))
			synctest.Wait()
			x.get("app").crash()
			pass(5 * time.Second)
			x.expect(t, "app", blocked, "wait")
			none("ended by a shutdown")
		}
		f.mu.Lock()
		f.prepareError = fmt.Errorf("plugin: role app: %w", syscall.ENOSPC)
		f.mu.Unlock()
		x.desire(role("store"), role("app", "store"))
		pass(time.Hour)
		x.expect(t, "app", backoff, "no space left on device")
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 0 || !strings.Contains(got.GetCause(), "no space left") {
			t.Errorf("failure %v", got)
		}
		f.mu.Lock()
		f.prepareError, f.refuse = nil, func(string, string) error { return &plugin.LaunchError{Role: "app", Err: syscall.ENOSPC, Node: true} }
		f.mu.Unlock()
		pass(time.Hour)
		x.expect(t, "app", backoff, "the node cannot launch it: role app (plugin  , ): no space left on device")
		f.mu.Lock()
		f.refuse = nil
		f.mu.Unlock()
		pass(time.Minute)
		x.expect(t, "app", ready, "")
	}, budget(0, time.Hour), func(c *roles.Config) {
		c.Launched = func(string, time.Duration) { time.Sleep(2 * time.Second) } // while its actor looks at nothing
	})
}

func TestFailuresOfLaunches(t *testing.T) {
	f := newFakes()
	f.refuse = func(string, string) error {
		return &plugin.LaunchError{Role: "app", Err: plugin.ErrExited, Exit: &plugin.Exit{Code: 7}, Lines: []string{"cannot find my own feet"}}
	}
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(time.Minute)
		x.expect(t, "app", failed, "it failed 3 times within 10m, and 2 are allowed: the launch failed: it ended before it was started; it last wrote: cannot find my own feet")
		got := x.of("app").GetLastFailure()
		if got.GetExitCode() != 7 || got.ExitCode == nil || !slices.Equal(got.GetLines(), []string{"cannot find my own feet"}) || got.GetInstanceId() != "node/app/3" {
			t.Errorf("failure %v", got)
		}
		f.mu.Lock()
		f.refuse = func(string, string) error {
			return &plugin.ConfigurationError{Role: "app", Problems: []plugin.ConfigurationProblem{{Path: "/colour", Message: strings.Repeat("no such field", 1000)}}}
		}
		f.mu.Unlock()
		x.desire(configured(role("app"), "{}", 2))
		x.expect(t, "app", failed, "refuses its configuration: /colour: no such field")
		got = x.of("app").GetLastFailure()
		if !strings.HasPrefix(got.GetCause(), "refuses its configuration: /colour: no such field") || len(got.GetCause()) > 1024 || got.GetFailures() != 0 || got.ExitCode != nil {
			t.Errorf("failure %v", got)
		}
	}, budget(2, 10*time.Minute))
}

func TestRolesThatSayTheyFailedAreCounted(t *testing.T) {
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		x.get("app").say(rolev1.RoleState_ROLE_STATE_FAILED, "no strength left")
		x.expect(t, "app", backoff, "no strength left")
		// Its last word counts, also if its end is seen at the same time.
		pass(time.Minute)
		x.get("app").say(rolev1.RoleState_ROLE_STATE_FAILED, "no strength left again")
		x.get("app").end(plugin.Exit{Code: 1})
		x.expect(t, "app", failed, "no strength left again")
		if got := x.of("app").GetLastFailure(); got.GetCause() != "no strength left again" || got.GetFailures() != 2 {
			t.Errorf("failure %v", got)
		}
	}, budget(1, time.Hour))
}

// largest is a failure that says as much as one can.
func TestTheLargestFailure(t *testing.T) {
	var lines []string
	for n := range 20 {
		lines = append(lines, fmt.Sprintf("%02d \x1b\n%s", n, strings.Repeat("\u00e4", 1000)))
	}
	f := newFakes()
	f.refuse = func(string, string) error {
		return &plugin.LaunchError{Role: "app", Err: errors.New(strings.Repeat("x\x00", 1<<20)), Exit: &plugin.Exit{Code: 1 << 30}, Lines: lines}
	}
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		synctest.Wait()
		got := x.of("app").GetLastFailure()
		if size := proto.Size(got); size > 4<<10 || size < 3<<10 {
			t.Errorf("it has %d bytes", size)
		}
		if len(got.GetLines()) != 8 || !strings.HasPrefix(got.GetLines()[0], `12 \x1b\n`) || len(got.GetLines()[0]) > 256 || strings.ContainsAny(got.GetCause(), "\x00\n") {
			t.Errorf("failure %v", got)
		}
	})
}

// kept sets where failures are kept.
func kept(dir, boot string) func(*roles.Config) {
	return func(c *roles.Config) { c.FailuresDir, c.BootID = dir, boot }
}

func TestFailuresAreKept(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "failures")
	file := filepath.Join(dir, "app.json")
	allowed := budget(2, 10*time.Minute)
	names := func() (found []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			found = append(found, entry.Name())
		}
		return found
	}
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"), role("well"))
		x.crash(t, "app", 2)
		x.expect(t, "app", ready, "")
	}, kept(dir, "one"), allowed)
	if !slices.Equal(names(), []string{"app.json"}) {
		t.Errorf("files %v", names())
	}
	var shown *clusterv1.Failure
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		if got := x.of("app").GetLastFailure(); got.GetFailures() != 2 || got.GetSignal() != "SIGKILL" {
			t.Errorf("failure %v", got)
		}
		x.crash(t, "app", 1)
		x.expect(t, "app", failed, "it failed 3 times")
		shown = x.of("app").GetLastFailure()
	}, kept(dir, "one"), allowed)
	// The same boot: still Failed, for the same reason, and not started.
	f := newFakes()
	bubble(t, f, func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		pass(time.Hour)
		x.expect(t, "app", failed, "it failed 3 times within 10m, and 2 are allowed: ended by signal 9 (killed); it is started again by: reeve node role restart node app")
		if !proto.Equal(x.of("app").GetLastFailure(), shown) || f.launches > 0 {
			t.Errorf("%d launches, failure %v", f.launches, x.of("app").GetLastFailure())
		}
	}, kept(dir, "one"), allowed)
	// Another boot: a fresh budget, and what happened is still shown.
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		if !proto.Equal(x.of("app").GetLastFailure(), shown) {
			t.Errorf("failure %v", x.of("app").GetLastFailure())
		}
		x.crash(t, "app", 2)
		x.expect(t, "app", ready, "")
		x.crash(t, "app", 1)
		x.expect(t, "app", failed, "")
		// Given up, and something else desired before the core starts again.
		x.desire(configured(role("app"), "{}", 2))
		x.expect(t, "app", ready, "")
	}, kept(dir, "two"), allowed)
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		// What is removed and added again is a new start.
		x.crash(t, "app", 3)
		x.expect(t, "app", failed, "")
		x.desire()
		synctest.Wait()
		if len(names()) != 0 {
			t.Errorf("files %v", names())
		}
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		if x.of("app").GetLastFailure() != nil {
			t.Errorf("failure %v", x.of("app").GetLastFailure())
		}
		x.crash(t, "app", 1)
	}, kept(dir, "two"), allowed)
	// What was removed while no core ran, and what a core left that was killed while it wrote.
	for _, name := range []string{".app.json123", ".gone.json77"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(names(), "app.json") {
		t.Errorf("files %v", names())
	}
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("other"))
		x.expect(t, "other", ready, "")
		if len(names()) != 0 {
			t.Errorf("files %v", names())
		}
	}, kept(dir, "two"), allowed)
	// What cannot be read or written stops nothing.
	for name, spoil := range inorder.Of(map[string]func() error{
		"torn":      func() error { return os.WriteFile(file, []byte(`{"version":1,"bootId":"tw`), 0o600) },
		"newer":     func() error { return os.WriteFile(file, []byte(`{"version":2,"app":{}}`), 0o600) },
		"empty":     func() error { return os.WriteFile(file, nil, 0o600) },
		"fifo":      func() error { return syscall.Mkfifo(file, 0o600) },
		"directory": func() error { return os.MkdirAll(filepath.Join(file, "full"), 0o700) },
		"no place":  func() error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	}) {
		t.Run(name, func(t *testing.T) {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			bubble(t, newFakes(), func(t *testing.T, x *fixture) {
				x.desire(role("app"))
				x.crash(t, "app", 2)
				x.expect(t, "app", ready, "")
				x.crash(t, "app", 1)
				x.expect(t, "app", failed, "it failed 3 times")
				if _, err := x.Restart(t.Context(), "app", false); err != nil {
					t.Error(err)
				}
				x.expect(t, "app", ready, "")
			}, kept(dir, "two"), allowed)
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A clock that was set neither crashes the core nor keeps a role Failed for longer than it should be.
func TestFailuresOfTheFuture(t *testing.T) {
	dir := t.TempDir()
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		pass(1000 * time.Hour)
		x.desire(role("app"))
		x.crash(t, "app", 2)
	}, kept(dir, ""), budget(2, 10*time.Minute))
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(role("app"))
		x.expect(t, "app", ready, "")
		pass(11 * time.Minute)
		x.crash(t, "app", 2)
		x.expect(t, "app", ready, "")
	}, kept(dir, ""), budget(2, 10*time.Minute))
}

// TestStoreAwayDoesNotCount has roles fail while the store has no majority. Those that use it are tried again until it has one; another one is given up.
func TestStoreAwayDoesNotCount(t *testing.T) {
	away := ""
	bubble(t, newFakes(), func(t *testing.T, x *fixture) {
		x.desire(providing(role("store"), roles.CapabilityConsensus), role("user", roles.CapabilityConsensus), role("other"))
		x.expect(t, "user", ready, "")
		away = "the consensus store has no majority"
		x.crash(t, "user", 20)
		x.expect(t, "user", ready, "")
		x.get("user").crash()
		x.expect(t, "user", backoff, "the consensus store has no majority")
		x.crash(t, "other", 2)
		x.expect(t, "other", failed, "it failed 2 times")
		// The majority is back: all is Ready by itself, and what fails from then on counts.
		away = ""
		pass(31 * time.Second)
		x.expect(t, "user", ready, "")
		if got := x.of("user").GetLastFailure(); got.GetFailures() != 0 {
			t.Errorf("failure %v", got)
		}
		x.crash(t, "user", 2)
		x.expect(t, "user", failed, "it failed 2 times")
	}, budget(1, time.Hour), func(c *roles.Config) { c.StoreAway = func() string { return away } })
}
