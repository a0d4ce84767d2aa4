package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/storage"
)

func layout(t *testing.T) storage.Layout {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reeve-storage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return storage.Layout{System: filepath.Join(dir, "system"), Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")}
}

func open(t *testing.T, l storage.Layout) *storage.Storage {
	t.Helper()
	s, err := storage.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestOneCoreAtATime(t *testing.T) {
	l := layout(t)
	first := open(t, l)
	_, err := storage.Open(l)
	var inUse *storage.InUseError
	if !errors.As(err, &inUse) || inUse.Lock != filepath.Join(l.System, "lock") {
		t.Fatalf("a second core on the same directory: %v", err)
	}
	// One directory in common is enough, and the others are given back.
	for _, share := range []func(*storage.Layout){
		func(other *storage.Layout) { other.Data = l.Data }, func(other *storage.Layout) { other.Run = l.Run },
	} {
		other := layout(t)
		share(&other)
		if _, err := storage.Open(other); !errors.As(err, &inUse) {
			t.Errorf("a core that shares a directory with another: %v", err)
		}
		other.Data, other.Run = filepath.Join(other.System, "..", "data"), filepath.Join(other.System, "..", "run")
		open(t, other)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, l)
}

func TestModes(t *testing.T) {
	l := layout(t)
	if err := os.MkdirAll(l.Data, 0o777); err != nil {
		t.Fatal(err)
	}
	open(t, l)
	shared := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		shared = 0o711
	}
	for path, want := range map[string]os.FileMode{l.System: 0o700, l.Data: shared, l.Run: shared} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

func TestParents(t *testing.T) {
	l := layout(t)
	l.System = filepath.Join(filepath.Dir(l.System), "deep", "er", "system")
	open(t, l)
	if info, err := os.Stat(filepath.Dir(l.System)); err != nil || info.Mode().Perm()&0o011 != 0o011 {
		t.Errorf("the parent of a private directory is %v, %v", info.Mode(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	closed := layout(t)
	dir := filepath.Dir(closed.Data)
	closed.Data, closed.Run = filepath.Join(dir, "closed", "more", "data"), filepath.Join(dir, "link", "run")
	if err := errors.Join(os.MkdirAll(filepath.Dir(closed.Data), 0o700), os.MkdirAll(filepath.Join(dir, "aside", "there"), 0o700),
		os.Chmod(filepath.Join(dir, "aside", "there"), 0o711), os.Symlink("aside/there", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	// All are named at once, also on the way that a link leads.
	_, err := storage.Open(closed)
	var unsearchable *storage.UnsearchableError
	want := []string{filepath.Join(dir, "aside"), filepath.Join(dir, "closed"), filepath.Join(dir, "closed", "more")}
	if !errors.As(err, &unsearchable) || !slices.Equal(unsearchable.Parents, want) || !strings.Contains(err.Error(), "chmod o+x "+strings.Join(want, " ")) {
		t.Errorf("roles cannot pass: %v", err)
	}
}

// Whatever the umask is, roles pass through what the core makes, and nobody writes there.
func TestUmask(t *testing.T) {
	for _, mask := range []int{0o077, 0o002, 0} {
		l := layout(t)
		above := filepath.Join(filepath.Dir(l.System), "a", "b")
		l = storage.Layout{System: filepath.Join(above, "system"), Data: filepath.Join(above, "data"), Run: filepath.Join(above, "r", "run")}
		before := syscall.Umask(mask)
		s, err := storage.Open(l)
		syscall.Umask(before)
		if err != nil {
			t.Fatalf("%03o: %v", mask, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		shared := os.FileMode(0o700)
		if os.Geteuid() == 0 {
			shared = 0o711
		}
		for path, want := range map[string]os.FileMode{filepath.Dir(above): 0o755, above: 0o755, filepath.Dir(l.Run): 0o755, l.System: 0o700, l.Data: shared, l.Run: shared} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%03o: %s: %v, %v, want %v", mask, path, info.Mode(), err, want)
			}
		}
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, content := range []string{"one", "two"} {
		if err := storage.WriteFile(path, []byte(content), 0o400); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("%q, %v", got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := storage.WriteFile(filepath.Join(path, "under", "a", "file"), nil, 0o400); err == nil {
		t.Error("a path that cannot be written was written")
	}
}

func TestVolume(t *testing.T) {
	mine := storage.Volume{Kind: storage.Plain, ClusterID: "c1", NodeID: "n1"}
	tests := map[string]struct {
		prepare func(t *testing.T, s *storage.Storage)
		format  bool
		want    string // part of the *VolumeError; empty: opened
	}{
		"empty is formatted":      {format: true},
		"empty is not a member's": {want: "volume.json is missing"},
		"an interrupted format goes on": {
			prepare: func(t *testing.T, s *storage.Storage) { write(t, filepath.Join(s.Data, ".volume.json1234"), "{") }, format: true,
		},
		"a new file system": {
			prepare: func(t *testing.T, s *storage.Storage) {
				if err := os.Mkdir(filepath.Join(s.Data, "lost+found"), 0o700); err != nil {
					t.Fatal(err)
				}
			}, format: true,
		},
		"what exists is not formatted": {
			prepare: func(t *testing.T, s *storage.Storage) { write(t, filepath.Join(s.Data, "photos"), "") }, format: true, want: "there is photos",
		},
		"opened again": {
			prepare: func(t *testing.T, s *storage.Storage) { format(t, s, mine) },
		},
		"formatted twice is opened": {
			prepare: func(t *testing.T, s *storage.Storage) { format(t, s, mine) }, format: true,
		},
		"another cluster's": {
			prepare: func(t *testing.T, s *storage.Storage) {
				format(t, s, storage.Volume{Kind: storage.Plain, ClusterID: "c2", NodeID: "n1"})
			}, format: true, want: "of cluster c2",
		},
		"damaged": {
			prepare: func(t *testing.T, s *storage.Storage) { write(t, s.Volume(), `{"version":1,"kind`) }, format: true, want: "damaged",
		},
		"newer": {
			prepare: func(t *testing.T, s *storage.Storage) { write(t, s.Volume(), `{"version":2,"shape":"round"}`) }, format: true, want: "version 2",
		},
		"unknown field": {
			prepare: func(t *testing.T, s *storage.Storage) { write(t, s.Volume(), `{"version":1,"shape":"round"}`) }, want: "shape",
		},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			s := open(t, layout(t))
			if test.prepare != nil {
				test.prepare(t, s)
			}
			err := s.OpenVolume(mine, test.format)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var problem *storage.VolumeError
			if !errors.As(err, &problem) || !strings.Contains(err.Error(), test.want) || problem.Data != s.Data {
				t.Errorf("error %v, want one that speaks of %q", err, test.want)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func format(t *testing.T, s *storage.Storage, v storage.Volume) {
	t.Helper()
	if err := s.OpenVolume(v, true); err != nil {
		t.Fatal(err)
	}
}

// The data directory is held as it is seen: what a volume puts over it is another directory than what was there before.
func TestHoldData(t *testing.T) {
	l := layout(t)
	s := open(t, l)
	if entries, err := os.ReadDir(l.Data); err != nil || len(entries) > 0 {
		t.Fatalf("holding the directory left something in it: %v, %v", entries, err)
	}
	held := func(want bool) {
		t.Helper()
		other := layout(t)
		other.Data = l.Data
		second, err := storage.Open(other)
		var inUse *storage.InUseError
		switch {
		case want && (!errors.As(err, &inUse) || inUse.Lock != l.Data):
			t.Fatalf("a second core on a directory that is held: %v", err)
		case !want && err != nil:
			t.Fatal(err)
		case err == nil:
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	held(true)
	if err := s.HoldData(); err != nil {
		t.Fatal(err)
	}
	held(true)
	problem := errors.New("the volume is busy")
	err := s.WithoutData(func() error {
		held(false)
		return problem
	})
	if !errors.Is(err, problem) {
		t.Fatal(err)
	}
	held(true)
	// Another directory takes the place, as a mount does.
	if err := os.Rename(l.Data, l.Data+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.Data, 0o777); err != nil {
		t.Fatal(err)
	}
	held(false)
	if err := s.HoldData(); err != nil {
		t.Fatal(err)
	}
	held(true)
	want := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o711
	}
	if info, err := os.Stat(l.Data); err != nil || info.Mode().Perm() != want {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// Somebody took it while it was given back.
	var taken *storage.Storage
	var inUse *storage.InUseError
	err = s.WithoutData(func() error {
		other := layout(t)
		other.Data = l.Data
		var err error
		taken, err = storage.Open(other)
		return err
	})
	if !errors.As(err, &inUse) {
		t.Errorf("taken by two: %v", err)
	}
	if err := errors.Join(taken.Close(), s.HoldData()); err != nil {
		t.Fatal(err)
	}
	held(true)
}

// Whoever removes run/ has neither the core nor the next one without it, and no second core starts meanwhile.
func TestRunIsMended(t *testing.T) {
	l := layout(t)
	owner, link := t.TempDir(), filepath.Join(l.Run, "of")
	if err := errors.Join(os.Mkdir(l.Run, 0o700), os.Symlink(owner, link)); err != nil {
		t.Fatal(err)
	}
	s := open(t, l)
	if mended, err := s.MendRun(); mended || err != nil {
		t.Errorf("it was there: %t, %v", mended, err)
	}
	if err := os.RemoveAll(l.Run); err != nil {
		t.Fatal(err)
	}
	if mended, err := s.MendRun(); !mended || err != nil {
		t.Errorf("%t, %v", mended, err)
	}
	want := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o711
	}
	if info, err := os.Stat(l.Run); err != nil || info.Mode().Perm() != want {
		t.Errorf("%v, %v", info, err)
	}
	if of, err := os.Readlink(link); err != nil || of != owner {
		t.Errorf("the run directory is of %q, %v", of, err)
	}
	other := layout(t)
	other.Run = l.Run
	var inUse *storage.InUseError
	if _, err := storage.Open(other); !errors.As(err, &inUse) || inUse.Lock != filepath.Join(l.Run, "lock") {
		t.Errorf("a core on the directory that was made again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, l)
}

// Whoever made run/ while it was missing does not get the sockets of the node.
func TestRunOfSomebodyElse(t *testing.T) {
	directory := func(mode os.FileMode) func(string) error {
		// The umask does not decide.
		return func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)) }
	}
	foreign := func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Lchown(path, 4711, 4711)) }
	link := func(path string) error { return os.Symlink(t.TempDir(), path) }
	within := func(parent func(string) error, run func(string) error) func(string) error {
		return func(path string) error {
			return errors.Join(parent(filepath.Dir(path)), run(path))
		}
	}
	nothing := func(string) error { return nil }
	for name, test := range map[string]struct {
		make    func(run string) error
		refused bool
		root    bool
	}{
		"nothing":                 {nothing, false, false},
		"its own":                 {within(directory(0o755), directory(0o700)), false, false},
		"in a sticky one":         {within(directory(0o777|os.ModeSticky), nothing), false, false},
		"below a link of its own": {within(link, nothing), false, false},
		"one for all":             {within(directory(0o755), directory(0o777)), true, false},
		"a sticky one for all":    {within(directory(0o755), directory(0o777|os.ModeSticky)), true, false},
		"a link":                  {within(directory(0o755), link), true, false},
		"in one for all":          {within(directory(0o777), nothing), true, false},
		"a foreign one":           {within(directory(0o755), foreign), true, true},
		"in a foreign one":        {within(foreign, nothing), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("cannot run: only root can give a directory to another user")
			}
			l := layout(t)
			l.Run = filepath.Join(filepath.Dir(l.Run), "parent", "run")
			s := open(t, l)
			if err := os.RemoveAll(filepath.Dir(l.Run)); err != nil {
				t.Fatal(err)
			}
			if err := test.make(l.Run); err != nil {
				t.Fatal(err)
			}
			mended, err := s.MendRun()
			if mended == test.refused || (err != nil) != test.refused {
				t.Fatalf("mended %t, %v", mended, err)
			}
			if _, err := os.Stat(filepath.Join(l.Run, "lock")); (err != nil) != test.refused {
				t.Errorf("the lock: %v", err)
			}
			if holds, err := s.HoldsRun(); holds == test.refused || err != nil {
				t.Errorf("it holds the run directory: %t, %v", holds, err)
			}
			if !test.refused {
				return
			}
			if !strings.Contains(err.Error(), "remove it") {
				t.Errorf("it does not say what to do: %v", err)
			}
			if err := os.RemoveAll(filepath.Dir(l.Run)); err != nil {
				t.Fatal(err)
			}
			if mended, err := s.MendRun(); !mended || err != nil {
				t.Errorf("afterwards: %t, %v", mended, err)
			}
		})
	}
}
