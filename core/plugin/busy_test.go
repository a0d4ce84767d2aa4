package plugin_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// A process that was forked while an import wrote the executable has it open a moment longer, and nobody can execute it until then. That is
// no failure of the role's.
func TestLaunchWaitsForWriters(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user a copy in memory is executed, which nobody writes")
	}
	node := newNode(t)
	digest := node.add(t, everything)
	path := node.storedFile(digest)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	what := spec(digest, everything, plugintest.Configuration{Do: "ready"})
	remit, err := node.launcher.Prepare(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	var instance *plugin.Instance
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		instance, err = node.launcher.Launch(context(), remit, what, "/nowhere")
	}()
	node.log.wait(t, func(l logged) bool { return strings.Contains(l.message, "open for writing") })
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	<-launched
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
	if err := instance.Stop(context(), time.Second); err != nil {
		t.Error(err)
	}
}

// Somebody has removed the directories of instances while the core runs: that is nothing that a role could help, and a role that is started finds them again.
func TestRemovedDirectoriesAreMadeAgain(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for _, name := range []string{"access", "host", "plugin"} {
		if err := os.RemoveAll(filepath.Join(node.dir, "run", name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := node.launchGranted(t, everything, plugintest.Configuration{Do: "ready"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(node.dir, "run", "access")); err != nil {
		t.Error(err)
	}
}

// Nothing is made in the place of a volume that is gone: what a role wrote there would lie open.
func TestNoRoleStartsBesideItsVolume(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	what := spec(node.add(t, everything), everything, plugintest.Configuration{Do: "ready"})
	data := filepath.Join(node.dir, "data")
	if err := os.Rename(data, data+".volume"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(data, 0o711); err != nil {
		t.Fatal(err)
	}
	// Executables may lie outside of the volume.
	if err := os.Symlink(filepath.Join(data+".volume", "plugins"), filepath.Join(data, "plugins")); err != nil {
		t.Fatal(err)
	}
	if _, err := node.launcher.Prepare(t.Context(), what); err == nil {
		t.Error("a role is prepared without its volume")
	}
	for _, name := range []string{"roles", "logs"} {
		if _, err := os.Lstat(filepath.Join(data, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
