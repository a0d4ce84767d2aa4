package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// suite is what all tests share. It is set before the first of them.
var suite struct {
	// base is a directory that roles of every user can pass through, with a short path: socket paths end at 107 bytes.
	base     string
	programs *build.Programs
}

// ordinary is a user whom nobody else is, for the tests that run as root; nil if they do not.
var ordinary *devcluster.User

func TestMain(m *testing.M) {
	if socket := os.Getenv(connectVariable); socket != "" {
		connectAndExit(socket)
	}
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		_ = os.RemoveAll(suite.base)
		os.Exit(1)
	}
	leaktest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 || os.Getenv("REEVE_E2E_KEEP") == "" {
			_ = os.RemoveAll(suite.base)
		}
		os.Exit(code)
	}))
}

func setUp() error {
	workspace, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if isRoot() {
		id, err := usertest.Take()
		if err != nil {
			return err
		}
		ordinary = &devcluster.User{UID: id, GID: id}
	}
	if suite.base, err = os.MkdirTemp("", "re"); err != nil {
		return err
	}
	if err := os.Chmod(suite.base, 0o755); err != nil {
		return err
	}
	suite.programs, err = build.ForTests(context.Background(), workspace, filepath.Join(suite.base, "bin"))
	return err
}

func isRoot() bool { return os.Geteuid() == 0 }

// newCluster returns a cluster of the test's own user. through starts its commands.
func newCluster(t *testing.T, through ...string) *devcluster.Cluster {
	t.Helper()
	return devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: suite.base, Through: through})
}

// underUmask starts commands under another umask than the test's.
func underUmask(umask string) []string {
	return []string{"/bin/sh", "-c", "umask " + umask + `; exec "$@"`, "sh"}
}

// asEveryUser runs a test as the test's own user, and in soak also as an ordinary user if that is root.
// through starts the commands of the cluster.
func asEveryUser(t *testing.T, test func(t *testing.T, c *devcluster.Cluster), through ...string) {
	if soak.Enabled {
		asBothUsers(t, test, through...)
		return
	}
	test(t, newCluster(t, through...))
}

// asBothUsers runs a test as root and as an ordinary user, as far as the test's own user can. In the gate one test of each kind that differs between users does.
func asBothUsers(t *testing.T, test func(t *testing.T, c *devcluster.Cluster), through ...string) {
	if !isRoot() {
		test(t, newCluster(t, through...))
		return
	}
	asRoot(t, test, through...)
	asOrdinaryUser(t, test, through...)
}

func asRoot(t *testing.T, test func(t *testing.T, c *devcluster.Cluster), through ...string) {
	t.Run("root", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster(t, through...))
	})
}

func asOrdinaryUser(t *testing.T, test func(t *testing.T, c *devcluster.Cluster), through ...string) {
	t.Run("ordinary user", func(t *testing.T) {
		t.Parallel()
		test(t, devcluster.New(t, devcluster.Options{Programs: suite.programs, Base: suite.base, User: ordinary, Through: through}))
	})
}

// asAnyUser runs a test of something for which it does not matter who the user is: as root or as an ordinary user, by its name, so that half of these tests are run as each.
// In soak it is run as both.
func asAnyUser(t *testing.T, test func(t *testing.T, c *devcluster.Cluster)) {
	name := fnv.New32a()
	_, _ = name.Write([]byte(t.Name()))
	switch {
	case !isRoot() || soak.Enabled:
		asEveryUser(t, test)
	case name.Sum32()%2 == 0:
		asRoot(t, test)
	default:
		asOrdinaryUser(t, test)
	}
}

// plugins are the plugins that were built for the tests. A test that needs one waits until it is there.
var plugins struct {
	mu    sync.Mutex
	built map[string]func() (string, error)
}

// buildPlugin returns the executable of a plugin that is made on the spot. The same one is made once.
func buildPlugin(t *testing.T, source string, variables map[string]string) string {
	t.Helper()
	key := fmt.Sprint(source, variables)
	plugins.mu.Lock()
	if plugins.built == nil {
		plugins.built = make(map[string]func() (string, error))
	}
	if plugins.built[key] == nil {
		plugins.built[key] = sync.OnceValues(func() (string, error) {
			return roleplugin.Build(context.Background(), suite.programs.Workspace, suite.base, source, variables)
		})
	}
	built := plugins.built[key]
	plugins.mu.Unlock()
	executable, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return executable
}
