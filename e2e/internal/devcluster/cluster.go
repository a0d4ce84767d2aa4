// Package devcluster is a cluster in a dev directory, of one node or of several, as its operator has it: the command line, the files and the processes.
//
// A Cluster belongs to one test. When the test ends the node is stopped, and the test fails if any process of it is left. Processes are only ever
// killed if they are the cluster's: by the file that they run, by the instance that their environment names, or by their user ID.
package devcluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

// User is an ordinary user.
type User struct{ UID, GID int }

// Options say what cluster it is.
type Options struct {
	Programs *build.Programs
	// Base is a directory that everybody can pass through, with a short path.
	Base string
	// User runs the cluster; nil: the user of the test. Another one than that needs root.
	User *User
	// OwnNetwork gives the cluster a network of its own, which needs root: clusters of several nodes that run side by side would take each other's ports. The test cannot dial into it.
	OwnNetwork bool
	// Unreachable puts the dev directory into one that nobody else can pass through.
	Unreachable bool
	// Through is a program with its arguments that starts every command of the cluster: the command follows. So the cluster runs with less than the test has, or with another umask.
	Through []string
}

// Cluster is a cluster of one node.
type Cluster struct {
	Programs *build.Programs
	// Home is the directory in which the commands run.
	Home string
	// Directory is the dev directory.
	Directory string

	user     *User
	through  []string
	network  *os.File // its network namespace; nil: that of the test
	commands sync.WaitGroup
	// patience is how long the command may take that stops the cluster at the end.
	patience time.Duration

	mu      sync.Mutex
	nodeIDs map[string]bool
}

// New returns a cluster that does not exist yet: Up makes it.
func New(t testing.TB, options Options) *Cluster {
	t.Helper()
	home, err := makeHome(options.Base)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{
		Programs: options.Programs, Directory: filepath.Join(home, "d"), user: options.User, through: options.Through, Home: home, nodeIDs: make(map[string]bool),
	}
	if err := os.Chmod(home, 0o711); err != nil {
		t.Fatal(err)
	}
	if c.user != nil {
		if err := os.Chown(home, c.user.UID, c.user.GID); err != nil {
			t.Fatal(err)
		}
	}
	if options.Unreachable {
		private := filepath.Join(home, "private")
		if err := os.Mkdir(private, 0o700); err != nil {
			t.Fatal(err)
		}
		c.Directory = filepath.Join(private, "d")
	}
	if options.OwnNetwork {
		c.network = makeNetwork(t)
	}
	c.patience = commandTimeout + time.Second
	c.endWith(t)
	return c
}

// Sibling returns another cluster of the same user, in the network of the test.
func (c *Cluster) Sibling(t testing.TB) *Cluster {
	t.Helper()
	return New(t, Options{Programs: c.Programs, Base: filepath.Dir(c.Home), User: c.user})
}

// makeHome makes a directory with a name that is as short as can be: the path of a user's run directory has to fit into that of a socket.
func makeHome(base string) (string, error) {
	for n := 0; ; n++ {
		home := filepath.Join(base, strconv.Itoa(n))
		if err := os.Mkdir(home, 0o711); !errors.Is(err, fs.ErrExist) {
			return home, err
		}
	}
}

// State is where the dev directory really is: as root it is elsewhere if the roles' users could not reach it.
func (c *Cluster) State() string {
	if state, err := filepath.EvalSymlinks(c.Directory); err == nil {
		return state
	}
	return c.Directory
}

// nodesDirectory is where the second node and later ones lie, below the dev directory.
const nodesDirectory = "nodes/"

// NodeDirectories returns the directories of all nodes that there are: that of the first one is the dev directory, as far as it really is.
func (c *Cluster) NodeDirectories() []string {
	directories := []string{c.State()}
	more, _ := filepath.Glob(filepath.Join(c.State(), nodesDirectory, "*"))
	return append(directories, more...)
}

// Path returns a path below the dev directory.
func (c *Cluster) Path(elements ...string) string {
	return filepath.Join(append([]string{c.Directory}, elements...)...)
}

// Up makes the cluster if there is none, starts its node in the background and waits until it is up.
func (c *Cluster) Up(t testing.TB) Status {
	t.Helper()
	c.MustReeve(t, "dev", "up", "--detach")
	return c.Status(t)
}

// Down stops the node and everything that it runs.
func (c *Cluster) Down(t testing.TB) {
	t.Helper()
	c.MustReeve(t, "dev", "down")
	c.NoProcesses(t)
}

// environment is what every login has.
func (c *Cluster) environment() []string {
	environment := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "XDG_CONFIG_HOME=" + filepath.Join(c.Home, "config")}
	if c.uid() == 0 {
		return append(environment, "HOME=/root")
	}
	return append(environment, "HOME="+c.Home, "XDG_RUNTIME_DIR="+c.Home)
}

func (c *Cluster) uid() int {
	if c.user != nil {
		return c.user.UID
	}
	return os.Geteuid()
}

func (c *Cluster) credential() *syscall.Credential {
	if c.user == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(c.user.UID), Gid: uint32(c.user.GID)}
}

// endWith stops everything when the test ends, and fails it for what should not have been left. Each step is a cleanup of its own, and so is made whatever becomes of the
// ones before it: what one test leaves is in the way of all that follow. The last one that is registered here is the first.
func (c *Cluster) endWith(t testing.TB) {
	t.Cleanup(func() { c.removeFiles(t) })
	t.Cleanup(func() { endBridge(t, c.bridge()) })
	t.Cleanup(func() { endNamespaces(t, c.namespaces()) })
	t.Cleanup(c.commands.Wait)
	t.Cleanup(func() { c.endProcesses(t) })
	t.Cleanup(func() { c.endNodes(t) })
	t.Cleanup(func() {
		if t.Failed() {
			c.showFailure(t)
		}
	})
}

// endNodes stops the nodes as their operator does.
func (c *Cluster) endNodes(t testing.TB) {
	if _, err := os.Stat(c.Path("reeved.yaml")); err != nil {
		return
	}
	failed := t.Failed()
	down := c.start(t, c.Programs.Reeve(), "dev", "down", "--dir", c.Directory)
	if result := down.Wait(t, c.patience); result.Code != 0 && !failed {
		t.Error(result)
	}
}

// endProcesses kills what is left.
func (c *Cluster) endProcesses(t testing.TB) {
	for _, stray := range c.Processes(t) {
		t.Errorf("left at the end: %s", stray)
		t.Cleanup(func() { c.kill(t, stray) })
	}
}

func (c *Cluster) removeFiles(t testing.TB) {
	// What a core that was killed had open.
	Unmount(t, c.State())
	// As root the run directory is not below home, and the dev directory need not be.
	state := c.State()
	for _, node := range c.NodeDirectories() {
		if run, err := filepath.EvalSymlinks(filepath.Join(node, "run")); err == nil {
			c.remove(t, run)
		}
	}
	if keep, _ := strconv.ParseBool(os.Getenv("REEVE_E2E_KEEP")); keep && t.Failed() {
		t.Logf("the files are kept in %s", c.Home)
		return
	}
	// The empty directory stays until all tests have ended: its name is not used again, so that nothing of this cluster (a range of user IDs that is
	// reserved for a path, say) is taken for the next one's.
	entries, err := os.ReadDir(c.Home)
	if err != nil {
		t.Error(err)
	}
	for _, entry := range entries {
		c.remove(t, filepath.Join(c.Home, entry.Name()))
	}
	c.remove(t, state)
}

func (c *Cluster) remove(t testing.TB, path string) {
	Unmount(t, path)
	if err := os.RemoveAll(path); err != nil {
		t.Error(err)
	}
}

// Log returns what reeved has written to its log so far.
func (c *Cluster) Log(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(c.Path("reeved.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
