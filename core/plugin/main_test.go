package plugin_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/core/usertest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

const (
	// rangesFile is the host's own, so that the tests of several packages and the nodes of the host never share a user ID.
	rangesFile = "/var/lib/reeve/uid-ranges"
	// coreVariable makes the test program a core that a test kills.
	coreVariable = "REEVE_TEST_CORE"
)

// built is made by the first test that needs it, in a directory that TestMain removes.
var built struct {
	once       sync.Once
	dir        string
	executable *plugintest.Executable
	err        error
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(coreVariable); dir != "" {
		os.Exit(core(dir))
	}
	// The runtime's own goroutine closes what the collector finds, and may be at it.
	leaktest.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.runFinalizers"), goleak.Cleanup(func(code int) {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

func executable(t testing.TB) *plugintest.Executable {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("/tmp", "rv"); built.err == nil {
			if built.err = os.Chmod(built.dir, 0o711); built.err == nil {
				built.executable, built.err = plugintest.Build(built.dir)
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.executable
}

// testNode is a place for instances.
type testNode struct {
	dir      string
	log      *logSink
	launcher *plugin.Launcher
	store    *store.Store
	users    *users.Users
	groups   *cgroup.Tree
}

func newNode(t testing.TB) *testNode {
	t.Helper()
	dir := plugintest.Dir(t)
	for _, name := range []string{"run", "data"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	node, err := openNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, group := range node.groupsLeft(t, "") {
			if err := os.Remove(group); err != nil {
				t.Error(err)
			}
		}
	})
	return node
}

// openNode opens the place in a directory, as a core that starts does.
func openNode(dir string) (*testNode, error) {
	node := &testNode{dir: dir, log: &logSink{}}
	var err error
	data := filepath.Join(dir, "data")
	if node.store, err = store.Open(filepath.Join(data, "plugins")); err != nil {
		return nil, err
	}
	if node.users, err = users.Reserve(rangesFile, filepath.Join(data, "uids.json"), data, nil); err != nil {
		return nil, err
	}
	// The next core of the same test, which is in the same process, takes it.
	if err = node.users.Close(); err != nil {
		return nil, err
	}
	node.launcher, err = node.launcherIn(filepath.Join(dir, "run"), plugin.Patience{})
	return node, err
}

// patience has plugins that hang be found out sooner. A test that sets it expects nothing else of the plugin in time.
func (n *testNode) patience(t *testing.T, patience plugin.Patience) {
	t.Helper()
	var err error
	if n.launcher, err = n.launcherIn(filepath.Join(n.dir, "run"), patience); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) launcherIn(run string, patience plugin.Patience) (*plugin.Launcher, error) {
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Trace, Output: nowhere{}})
	log.RegisterSink(n.log)
	// In place of a node's memory it is a disk here, which others keep busy.
	patience.Discard = cmp.Or(patience.Discard, time.Minute)
	var err error
	if n.groups, err = cgroup.Open("reeve-" + filepath.Base(n.dir)); err != nil {
		return nil, err
	}
	return plugin.NewLauncher(plugin.Config{
		Log: log, Store: n.store, Users: n.users,
		RunDir: run, DataDir: filepath.Join(n.dir, "data"),
		NodeID: "reeve-" + filepath.Base(n.dir), CoreStart: time.Now(),
		Groups: n.groups, Defaults: sandbox.Defaults{MemoryBytes: 1 << 30, Processes: 128, OpenFiles: 1024, CPUWeight: 100}, Patience: patience,
	})
}

// coreWork is what a core that a test kills launches.
type coreWork struct {
	Digest        string
	Variant       plugintest.Variant
	Configuration plugintest.Configuration
}

// core is what a test runs as a process of its own in order to kill it: it launches an instance of each role as fast as it can, and waits.
func core(dir string) int {
	node, err := openNode(dir)
	if err != nil {
		fmt.Println("core:", err)
		return 1
	}
	var work coreWork
	content, err := os.ReadFile(filepath.Join(dir, "work"))
	if err == nil {
		err = json.Unmarshal(content, &work)
	}
	if err != nil {
		fmt.Println("core:", err)
		return 1
	}
	fmt.Println("begins")
	record := plugintest.Record(work.Digest, work.Variant)
	for _, role := range work.Variant.Roles {
		spec := plugin.Spec{Role: role.Name, Plugin: record, Configuration: work.Configuration.String(), Generation: 7, Restarts: 3}
		remit, err := node.launcher.Prepare(context(), spec)
		if err != nil {
			fmt.Println("core:", err)
			return 1
		}
		instance, err := node.launcher.Launch(context(), remit, spec, "/nowhere")
		if err != nil {
			fmt.Println("core:", err)
			return 1
		}
		_, err = instance.Status().Wait(context(), func(s *rolev1.WatchResponse) bool {
			return s.GetState() == rolev1.RoleState_ROLE_STATE_READY
		})
		if err != nil {
			fmt.Println("core:", err)
			return 1
		}
	}
	fmt.Println("ready")
	select {}
}

// childrenThatAreFound are the children that even a core which did not see its instance end can find.
func childrenThatAreFound() []string {
	return []string{"group", "session", "nameless"}
}

// everything is a well-behaved variant.
var everything = plugintest.Variant{
	Name:  "everything",
	Roles: []plugintest.Role{{Name: "one", ConsensusUser: "one"}, {Name: "two"}},
}

// add puts a variant into the store, as Import does. But the kernel copies it: to read, hash and write so many megabytes takes long under the race detector. The store
// verifies it when it is opened.
func (n *testNode) add(t testing.TB, variant plugintest.Variant) string {
	t.Helper()
	digest := executable(t).Digest(t, variant)
	if stored, err := n.store.Open(digest); err == nil {
		if err := stored.Close(); err != nil {
			t.Fatal(err)
		}
		return digest
	}
	mode := os.FileMode(0o555)
	if os.Geteuid() == 0 {
		mode = 0o511
	}
	path := n.storedFile(digest)
	executable(t).Write(t, path+".new", variant)
	if err := errors.Join(os.Chmod(path+".new", mode), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	return digest
}

// spec of role "one" of a stored variant.
func spec(digest string, variant plugintest.Variant, c plugintest.Configuration) plugin.Spec {
	return plugin.Spec{
		Role: variant.Roles[0].Name, Plugin: plugintest.Record(digest, variant), Configuration: c.String(), Generation: 7,
	}
}

// launch runs role "one" of everything and stops it when the test ends.
func (n *testNode) launch(t testing.TB, c plugintest.Configuration) *plugin.Instance {
	t.Helper()
	s := spec(n.add(t, everything), everything, c)
	remit, err := n.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := n.launcher.Launch(t.Context(), remit, s, filepath.Join(n.dir, "run", "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := instance.Stop(context(), time.Second); err != nil {
			t.Error(err)
		}
	})
	return instance
}

func waitState(t testing.TB, instance *plugin.Instance, state rolev1.RoleState) *rolev1.WatchResponse {
	t.Helper()
	ctx, cancel := timeout(t)
	defer cancel()
	status, err := instance.Status().Wait(ctx, func(s *rolev1.WatchResponse) bool { return s.GetState() == state })
	if err != nil {
		last, _ := instance.Status().Get()
		t.Fatalf("waiting for %s: %v; last status %v", state, err, last)
	}
	return status
}

// TestAsOrdinaryUser runs other tests once more, as a user who is nobody in particular.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	usertest.RunTests(t, ordinaryTests, plugintest.ExecutableVariable+"="+executable(t).Path())
}
