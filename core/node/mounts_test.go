package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/storage"
)

// disk is a directory that can be mounted at another one.
type disk struct {
	t        *testing.T
	from, at string
}

func newDisk(t *testing.T, name string) *disk {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reeve-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &disk{t: t, from: filepath.Join(dir, "of-"+name), at: filepath.Join(dir, name)}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(d.from, 0o755), os.Mkdir(d.at, 0o755)); err != nil {
		t.Fatal(err)
	}
	d.mount()
	return d
}

func (d *disk) mount() {
	d.t.Helper()
	if err := unix.Mount(d.from, d.at, "", unix.MS_BIND, ""); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = unix.Unmount(d.at, unix.MNT_DETACH) })
}

func (d *disk) unmount() {
	d.t.Helper()
	if err := unix.Unmount(d.at, 0); err != nil {
		d.t.Fatal(err)
	}
}

// refused starts the node, which ends by itself, and has said so before that if it was asked.
func (a *alive) refused() error {
	a.t.Helper()
	before, _ := Check(a.t.Context(), a.parameters, a.file)
	a.start()
	err := <-a.ended
	if err == nil {
		a.t.Fatal("the node started")
	}
	if !slices.ContainsFunc(before, func(one error) bool { return strings.HasSuffix(err.Error(), one.Error()) }) {
		a.t.Errorf("asked before, it says %v, and ends with: %v", before, err)
	}
	return err
}

// A node on a disk that is not mounted starts with an error that names the mount. It makes no other node, and leaves nothing in the mount point.
func TestADiskThatIsNotMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	t.Run("system and data", func(t *testing.T) {
		d := newDisk(t, "state")
		a := newAlive(t, plain())
		a.file = filepath.Join(filepath.Dir(a.parameters.GetDirectories().GetSystem()), "node.yaml")
		a.parameters.Directories.System, a.parameters.Directories.Data = filepath.Join(d.at, "system"), filepath.Join(d.at, "data")
		a.start()
		id := a.until("the role", ready).GetNodeId()
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		d.unmount()
		var lost *params.MountError
		if err := a.refused(); !errors.As(err, &lost) || lost.Target != d.at || lost.NodeID != id {
			t.Errorf("%v", err)
		}
		if left, err := os.ReadDir(d.at); err != nil || len(left) > 0 {
			t.Errorf("in the mount point: %v, %v", left, err)
		}
		d.mount()
		a.start()
		if again := a.until("the role", ready).GetNodeId(); again != id {
			t.Errorf("node %s is now %s", id, again)
		}
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		// On an empty disk the operator has to say that another node is meant.
		if err := os.Rename(d.from, d.from+".former"); err != nil {
			t.Fatal(err)
		}
		d.unmount()
		if err := os.Mkdir(d.from, 0o755); err != nil {
			t.Fatal(err)
		}
		d.mount()
		var made *params.MarkedError
		if err := a.refused(); !errors.As(err, &made) || made.NodeID != id {
			t.Errorf("%v", err)
		}
		a.again = true
		a.start()
		if other := a.until("the role", ready).GetNodeId(); other == id {
			t.Errorf("still node %s", id)
		}
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("data", func(t *testing.T) {
		d := newDisk(t, "data")
		a := newAlive(t, plain())
		a.file = filepath.Join(filepath.Dir(a.parameters.GetDirectories().GetSystem()), "node.yaml")
		a.parameters.Directories.Data = d.at
		a.start()
		id := a.until("the role", ready).GetNodeId()
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		d.unmount()
		var lost *params.MountError
		if err := a.refused(); !errors.As(err, &lost) || lost.Target != d.at || lost.Path != d.at || lost.NodeID != id {
			t.Errorf("%v", err)
		}
		// Without the mark it is refused as well, and nobody is told to give up what is left.
		if err := os.Remove(params.MarkPath(a.file)); err != nil {
			t.Fatal(err)
		}
		var gone *storage.VolumeError
		if err := a.refused(); !errors.As(err, &gone) || !strings.Contains(err.Error(), "mount the disk") || !strings.Contains(err.Error(), "Keep the system directory") {
			t.Errorf("%v", err)
		}
	})
}
