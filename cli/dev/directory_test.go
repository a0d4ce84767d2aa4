package dev_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
)

// makePlan returns a plan with plugins, and places below a directory with a short path that every user can search.
func makePlan(t *testing.T) (string, dev.Plan, dev.Places) {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	plugins := filepath.Join(root, "plugins")
	if err := errors.Join(os.Chmod(root, 0o711), os.Mkdir(plugins, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"consensus", "curator", "hostsfile"} {
		if err := os.WriteFile(filepath.Join(plugins, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, dev.Plan{Plugins: plugins}, dev.Places{State: filepath.Join(root, "state"), Run: filepath.Join(root, "run")}
}

func TestMakeKeeps(t *testing.T) {
	root, plan, places := makePlan(t)
	path := filepath.Join(root, "d")
	// Several at once make one.
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if _, err := dev.Make(path, plan, places); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	first, err := dev.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(path, "owner.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(path, "owner.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the owner key is %v, %v", info.Mode(), err)
	}
	// The run directory goes with the machine's run time, and comes again.
	if err := os.RemoveAll(places.Run); err != nil {
		t.Fatal(err)
	}
	second, err := dev.Make(path, dev.Plan{Plugins: "/nowhere"}, dev.Places{Run: "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := first.Parameters.String(), second.Parameters.String(); a != b {
		t.Errorf("the parameters changed:\n%s\n%s", a, b)
	}
	if again, err := os.ReadFile(filepath.Join(path, "owner.key")); err != nil || string(again) != string(key) {
		t.Error("the owner key changed")
	}
	if run, err := filepath.EvalSymlinks(filepath.Join(path, "run")); err != nil || run != first.Parameters.GetDirectories().GetRun() {
		t.Errorf("D/run is %s, %v", run, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s is left", entry.Name())
		}
	}
}

func TestMakeOutOfReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's roles have user IDs of their own, which have to reach the directory")
	}
	root, plan, places := makePlan(t)
	private := filepath.Join(root, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(private, "d")
	for range 2 {
		directory, err := dev.Make(path, plan, places)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(directory.State) != places.State {
			t.Errorf("the state is in %s", directory.State)
		}
		if target, err := os.Readlink(path); err != nil || target != directory.State {
			t.Errorf("the link is to %s, %v", target, err)
		}
		if data := directory.Parameters.GetDirectories().GetData(); filepath.Dir(data) != directory.State {
			t.Errorf("the volume is %s", data)
		}
	}
	// The state is thrown away, the link stays.
	if err := os.RemoveAll(places.State); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Make(path, plan, places); err != nil {
		t.Errorf("with a dangling link: %v", err)
	}
	// What is there already and cannot be a link is not taken away.
	other := filepath.Join(private, "other")
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(filepath.Join(other, "hosts"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Make(other, plan, places); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a directory in the way: %v", err)
	}
	empty := filepath.Join(private, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Make(empty, plan, places); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestMakeRefuses(t *testing.T) {
	root, plan, places := makePlan(t)
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A run directory that others can write is another one's trap.
	trap := dev.Places{State: places.State, Run: filepath.Join(root, "trap")}
	if err := errors.Join(os.Mkdir(trap.Run, 0o777), os.Chmod(trap.Run, 0o777)); err != nil {
		t.Fatal(err)
	}
	long := dev.Places{State: places.State, Run: filepath.Join(root, strings.Repeat("x", 48))}
	tests := []struct {
		name   string
		path   string
		places dev.Places
		want   fault.Code
	}{
		{"a file", file, places, fault.Usage},
		{"the directory of something else", root, places, fault.Refused},
		{"a run directory that others can write", filepath.Join(root, "a"), trap, fault.Refused},
		{"a run directory that is too long", filepath.Join(root, "b"), long, fault.Failed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := dev.Make(test.path, plan, test.places); err == nil || fault.CodeOf(err) != test.want {
				t.Errorf("error %v, want code %d", err, test.want)
			}
		})
	}
}

func TestFindNothing(t *testing.T) {
	if _, err := dev.Find(filepath.Join(t.TempDir(), "d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestHostPlaces(t *testing.T) {
	places := dev.HostPlaces()
	if os.Geteuid() == 0 && places.Run != "/run/reeve" {
		t.Errorf("root's run directories are in %s", places.Run)
	}
	if len(places.Run)+13 > 48 && os.Getenv("TMPDIR") == "" {
		t.Errorf("run directories in %s are too long", places.Run)
	}
}

func TestNamespacesAreRefused(t *testing.T) {
	root, plan, places := makePlan(t)
	path := filepath.Join(root, "d")
	if err := dev.CheckNamespaces(1000); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "as root") {
		t.Errorf("an ordinary user is answered %v", err)
	}
	if _, err := dev.Make(path, plan, places); err != nil {
		t.Fatal(err)
	}
	plan.Namespaces = true
	// A cluster that is there keeps its addresses.
	if _, err := dev.Make(path, plan, places); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a cluster with loopback addresses gets namespaces: %v", err)
	}
}

// A file system that takes no writes is told from a directory that is no good, with how to mend it.
func TestMakeWhereNothingIsWritten(t *testing.T) {
	root, plan, places := makePlan(t)
	path := filepath.Join(root, "disk")
	if err := os.Mkdir(path, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", path, "tmpfs", unix.MS_RDONLY, "size=1m,mode=711"); err != nil {
		t.Skipf("this cannot be tested here: only a root that may mount can make a file system read-only: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	for _, dir := range []string{path, filepath.Join(path, "dev")} {
		_, err := dev.Make(dir, plan, places)
		var refused *fault.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "read-only") || !strings.Contains(refused.Next, "unmount it, repair it (fsck)") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
