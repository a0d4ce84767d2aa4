package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// initialized is a machine that `reeve init` sets up, and whose reeved an init system would start. All is in the directory of a cluster, whose user it has.
type initialized struct {
	*devcluster.Cluster
	// file has the parameters, key is the owner's, state and run are the node's directories, hosts is its hosts file.
	file, key, state, run, hosts string
}

// newInitialized returns a machine on which nothing was made yet.
func newInitialized(t *testing.T, options devcluster.Options) initialized {
	t.Helper()
	options.Programs, options.Base = suite.programs, suite.base
	c := devcluster.New(t, options)
	m := initialized{c, c.Path("etc", "node.yaml"), c.Path("owner.key"), c.Path("state"), filepath.Join(c.Home, "r"), c.Path("hosts")}
	err := errors.Join(os.Mkdir(c.Directory, 0o755), os.Chmod(c.Directory, 0o755), os.WriteFile(m.hosts, []byte("127.0.0.1\tlocalhost\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// init runs `reeve init`.
func (m initialized) init(t *testing.T, arguments ...string) devcluster.Result {
	t.Helper()
	return m.StartAlone(t, append([]string{"init", "--owner-key", m.key, "--file", m.file, "--state", m.state, "--run", m.run, "--hosts-file", m.hosts}, arguments...)...).Wait(t, patience)
}

// doctor runs `reeve doctor` for its parameters, and returns what that says.
func (m initialized) doctor(t *testing.T) string {
	t.Helper()
	return m.StartAlone(t, "doctor", "--parameters", m.file).Wait(t, patience).Stdout
}

// reeve runs reeve on the machine, as its owner.
func (m initialized) reeve(t *testing.T, arguments ...string) devcluster.Result {
	t.Helper()
	return m.StartAlone(t, append(arguments, "--socket", filepath.Join(m.run, "node.sock"), "--owner-key", m.key)...).Wait(t, patience)
}

// mustReeve is reeve, and fails the test if the command does.
func (m initialized) mustReeve(t *testing.T, arguments ...string) string {
	t.Helper()
	result := m.reeve(t, arguments...)
	if result.Code != 0 {
		t.Fatal(result)
	}
	return result.Stdout
}

// startReeved starts its reeved.
func (m initialized) startReeved(t *testing.T, arguments ...string) *devcluster.Running {
	t.Helper()
	return m.StartProgram(t, suite.programs.Reeved(), append([]string{"--parameters", m.file}, arguments...)...)
}

// home waits until a node that has made a cluster is Home with its roles, and returns what it says of itself.
func (m initialized) home(t *testing.T, reeved *devcluster.Running) devcluster.Status {
	t.Helper()
	return m.up(t, reeved, devcluster.DefaultRoles...)
}

// up waits until the node is Home and these roles are Ready, and returns what it says of itself.
func (m initialized) up(t *testing.T, reeved *devcluster.Running, roles ...string) (status devcluster.Status) {
	t.Helper()
	eventually.True(t, patience, "the node Home, with its roles", func() (bool, string) {
		result := m.reeve(t, "status", "-o", "json")
		if result.Code != 0 {
			_, said := reeved.Output()
			return false, result.String() + said
		}
		var err error
		if status, err = devcluster.ParseStatus(result.Stdout); err != nil {
			return false, err.Error()
		}
		return status.Up(roles...), status.String()
	})
	return status
}

// stopReeved stops a reeved as an init system does.
func (m initialized) stopReeved(t *testing.T, reeved *devcluster.Running) {
	t.Helper()
	reeved.Signal(t, syscall.SIGTERM)
	if result := reeved.Wait(t, patience); result.Code != 0 {
		t.Fatal(result)
	}
	m.NoProcesses(t)
}

// TestDiskIsNotMounted takes away the disk of a node's state directory. Every program that would make another node in its place is refused, and names the mount; --again is the way on. The machine
// is set up and runs under the strictest umask.
func TestDiskIsNotMounted(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("cannot run: only root can mount")
	}
	m := newInitialized(t, devcluster.Options{Through: underUmask("077")})
	disk := m.Path("disk")
	if err := errors.Join(os.Mkdir(disk, 0o711), os.Mkdir(m.state, 0o711)); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		if err := unix.Mount(disk, m.state, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		t.Helper()
		if err := unix.Unmount(m.state, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(m.state, unix.MNT_DETACH) })
	mount()
	if result := m.init(t); result.Code != 0 {
		t.Fatal(result)
	}
	reeved := m.startReeved(t)
	made := m.home(t, reeved).Node.ID
	m.stopReeved(t, reeved)

	unmount()
	want := []string{"nothing is mounted at " + m.state, "node " + made, "--again"}
	named := func(who, said string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("%s does not name %q:\n%s", who, part, said)
			}
		}
	}
	refused := m.startReeved(t).Wait(t, patience)
	if refused.Code <= 0 {
		t.Errorf("reeved has made another node: %s", refused)
	}
	named("reeved", refused.Stderr)
	named("doctor", m.doctor(t))
	// init also without the parameters: the machine was set up anew, but for the mark.
	kept := m.Path("kept.yaml")
	if err := os.Rename(m.file, kept); err != nil {
		t.Fatal(err)
	}
	if refused = m.init(t); refused.Code <= 0 {
		t.Errorf("init sets up another node: %s", refused)
	}
	named("init", refused.Stderr)
	if result := m.init(t, "--again", "--dry-run", "--owner-key", m.Path("other.key")); result.Code != 0 {
		t.Errorf("with --again init refuses too: %s", result)
	}
	if err := os.Rename(kept, m.file); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(m.state); err != nil || len(left) > 0 {
		t.Errorf("made in the mount point: %v, %v", left, err)
	}

	mount()
	if said := m.doctor(t); !strings.Contains(said, "reeved takes "+m.file) {
		t.Errorf("with the disk mounted again doctor says:\n%s", said)
	}

	unmount()
	reeved = m.startReeved(t, "--again")
	if again := m.home(t, reeved).Node.ID; again == made {
		t.Errorf("it is node %s, which is on the disk that is not there", again)
	}
	m.stopReeved(t, reeved)
}
