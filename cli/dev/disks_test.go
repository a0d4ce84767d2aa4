package dev_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/mountinfo"
)

// Where a dev directory was on a disk that is not mounted, no other cluster is made, unless its operator says so. A directory that was removed from its disk is forgotten.
func TestDiskThatIsNotMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	root, plan, places := makePlan(t)
	places.Disks = filepath.Join(root, "disks")
	from, at := filepath.Join(root, "from"), filepath.Join(root, "at")
	if err := errors.Join(os.Mkdir(from, 0o755), os.Mkdir(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		t.Helper()
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	mounts, err := mountinfo.Own()
	if err != nil {
		t.Fatal(err)
	}
	if on := mountinfo.On(mounts, at); on == nil || on.Type == "tmpfs" {
		t.Skip("cannot run: temporary files are in memory")
	}
	path := filepath.Join(at, "d")
	if _, err := dev.Make(path, plan, places); err != nil {
		t.Fatal(err)
	}
	unmount()
	_, err = dev.Make(path, plan, places)
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "nothing is mounted at "+at) || !strings.Contains(err.Error(), "--again") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("in the mount point: %v, %v", left, err)
	}
	mount()
	if _, err := dev.Make(path, plan, places); err != nil {
		t.Errorf("mounted again: %v", err)
	}
	// Removed, on the disk: that is how a cluster is begun anew in development.
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Make(path, plan, places); err != nil {
		t.Errorf("removed: %v", err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Make(filepath.Join(at, "other"), plan, places); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadDir(places.Disks); err != nil || len(kept) != 1 {
		t.Errorf("%v, %v", kept, err)
	}
	unmount()
	plan.Again = true
	if _, err := dev.Make(filepath.Join(at, "other"), plan, places); err != nil {
		t.Errorf("given up: %v", err)
	}
}
