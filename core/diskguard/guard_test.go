package diskguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/diskguard"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// patience only bounds a test that fails. It is time of the bubble.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// size of the volumes of the tests. A hundredth of it is reserved; ample is eight hundredths.
const size = 64 << 20

// volume is a small one of a test's own, with a guard.
type volume struct {
	t         *testing.T
	path      string
	instances event.Value[roles.Instances]
	guard     *diskguard.Guard
	end       func()

	events event.Value[[]*nodev1.Event]
}

// Record implements roles.Recorder.
func (v *volume) Record(e *nodev1.Event) {
	before, _ := v.events.Get()
	v.events.Set(append(slices.Clone(before), e))
}

// onVolume runs a test on a volume of its own, in a bubble: the guard looks again when the test waits, however long what the test does before takes.
func onVolume(t *testing.T, options string, names []string, test func(t *testing.T, v *volume)) {
	t.Helper()
	path := t.TempDir()
	err := unix.Mount("none", path, "tmpfs", 0, fmt.Sprintf("size=%d%s", size, options))
	if errors.Is(err, unix.EPERM) {
		t.Skip("cannot run: only a root that may mount can make a disk to fill")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { test(t, newVolume(t, path, names...)) })
}

func newVolume(t *testing.T, path string, names ...string) *volume {
	t.Helper()
	v := &volume{t: t, path: path}
	var instances roles.Instances
	for _, name := range names {
		if err := os.MkdirAll(v.of(name), 0o700); err != nil {
			t.Fatal(err)
		}
		instances = append(instances, roles.Instance{Status: &clusterv1.InstanceStatus{Role: name}})
	}
	v.instances.Set(instances)
	v.start()
	t.Cleanup(func() { v.end() })
	return v
}

// of is the directory of a role, or what is in it.
func (v *volume) of(role string, names ...string) string {
	return filepath.Join(append([]string{v.path, "roles", role}, names...)...)
}

// newGuard makes a guard that looks when it is told to.
func (v *volume) newGuard() {
	v.guard = diskguard.New(diskguard.Config{
		Data: v.path, Roles: filepath.Join(v.path, "roles"), Reserve: filepath.Join(v.path, "reserve"), Kept: filepath.Join(v.path, "cache", "full.json"),
		Instances: &v.instances, Exempt: func(i roles.Instance) bool { return i.Status.GetRole() == "store" }, Events: v,
	})
}

// start runs a guard, as a core that starts does.
func (v *volume) start() {
	v.newGuard()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.guard.Run(ctx) }()
	v.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			v.t.Error(err)
		}
	})
}

// take fills a file of a role with so many bytes, or as many as there is room for.
func (v *volume) take(path string, bytes int) {
	v.t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	piece := make([]byte, 64<<10)
	for ; bytes > 0; bytes -= len(piece) {
		if _, err := file.Write(piece[:min(len(piece), bytes)]); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			v.t.Fatal(err)
		}
	}
}

// free is how many bytes there is room for.
func (v *volume) free() int {
	v.t.Helper()
	var found unix.Statfs_t
	if err := unix.Statfs(v.path, &found); err != nil {
		v.t.Fatal(err)
	}
	return int(found.Bavail) * int(found.Bsize)
}

// await waits until which roles must not run is as accept wants.
func (v *volume) await(what string, accept func(full map[string]string) bool) map[string]string {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	full, err := v.guard.Full().Wait(ctx, accept)
	if err != nil {
		now, _ := v.guard.Full().Get()
		v.t.Fatalf("%s: %v: %v", what, now, err)
	}
	synctest.Wait() // the look comes to its end
	return full
}

func stopped(names ...string) func(map[string]string) bool {
	return func(full map[string]string) bool {
		for _, name := range names {
			if full[name] == "" {
				return false
			}
		}
		return len(full) == len(names)
	}
}

// reserved waits until the reserve is there, or is not.
func (v *volume) reserved(want bool) {
	v.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		info, err := os.Stat(filepath.Join(v.path, "reserve"))
		if (err == nil && info.Size() > 0) == want {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("the reserve: %v, %v", info, err)
		}
	}
}

func TestARoleFillsTheDisk(t *testing.T) {
	t.Parallel()
	onVolume(t, "", []string{"hog", "other", "store"}, func(t *testing.T, v *volume) {
		v.reserved(true)
		v.take(v.of("other", "data"), 4<<20)
		v.take(v.of("store", "wal"), 20<<20)
		// All but a little: it takes nothing of the reserve, however early that is given free.
		v.take(v.of("hog", "data"), v.free()-64<<10)
		full := v.await("the hog is stopped", stopped("hog"))
		if !strings.HasPrefix(full["hog"], "filled the disk: 3") || !strings.Contains(full["hog"], " MiB in its data directory; ") {
			t.Errorf("reason %q", full["hog"])
		}
		// It is stopped first, and written down then.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		events, err := v.events.Wait(ctx, func(events []*nodev1.Event) bool { return len(events) > 0 })
		if err != nil || len(events) != 1 || events[0].GetType() != "RoleFilledDisk" || events[0].GetRole() != "hog" {
			t.Errorf("events %v (%v)", events, err)
		}
		// What was reserved is there for the others.
		v.reserved(false)
		if err := os.WriteFile(v.of("store", "write"), make([]byte, 500<<10), 0o600); err != nil {
			t.Errorf("the store: %v", err)
		}
		// The next core knows.
		v.end()
		v.start()
		v.await("the hog is stopped after a restart", stopped("hog"))
		// An operator has it run again; there is room now.
		if err := os.Remove(v.of("hog", "data")); err != nil {
			t.Fatal(err)
		}
		v.guard.Release("hog") // unless the guard has seen by itself that it has less
		if v.guard.Release("hog") {
			t.Error("the hog was released twice")
		}
		v.await("nothing is stopped", stopped())
		v.reserved(true)
		if _, err := os.Stat(filepath.Join(v.path, "cache", "full.json")); !os.IsNotExist(err) {
			t.Errorf("it is still known: %v", err)
		}
	})
}

// A role that grows while everybody can see it is found by that, even if another one has more.
func TestWhoGrowsIsBlamed(t *testing.T) {
	t.Parallel()
	onVolume(t, "", []string{"hog", "large"}, func(t *testing.T, v *volume) {
		v.take(v.of("large", "data"), 40<<20)
		v.reserved(true)
		// Slowly: the guard, which takes its time on a busy machine, looks after each piece.
		v.end()
		v.newGuard()
		for range size / (128 << 10) {
			v.guard.Look(t.Context())
			if full, _ := v.guard.Full().Get(); len(full) > 0 {
				break
			}
			v.take(v.of("hog", "data"), 128<<10)
		}
		v.await("the hog is stopped", stopped("hog"))
		v.start()
		v.await("the hog is stopped after a restart", stopped("hog"))
		// With less data it may run again.
		if err := os.Truncate(v.of("hog", "data"), 1<<20); err != nil {
			t.Fatal(err)
		}
		v.await("the hog may run", stopped())
		v.reserved(true)
	})
}

// What others fill is no role's fault.
func TestNobodyIsBlamed(t *testing.T) {
	t.Parallel()
	onVolume(t, "", []string{"small", "store"}, func(t *testing.T, v *volume) {
		v.take(v.of("small", "data"), 2<<20)
		v.reserved(true)
		v.take(v.of("store", "wal"), size)
		v.take(filepath.Join(v.path, "elsewhere"), size)
		v.reserved(false)
		time.Sleep(patience) // longer than the guard ever waits before it looks again for who has filled the disk
		if full, _ := v.guard.Full().Get(); len(full) > 0 {
			t.Errorf("%v", full)
		}
	})
}

// reservedFiles waits until so many files are reserved.
func (v *volume) reservedFiles(want int) {
	v.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		found, err := os.ReadDir(filepath.Join(v.path, "reserve.d"))
		if len(found) == want {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("%d files are reserved, and not %d: %v", len(found), want, err)
		}
	}
}

// TestFilesAreReservedWhenTheyMayRunOut holds that a volume with plenty of files has none that are reserved, and one with fewer has them, also while bytes are neither ample nor short.
func TestFilesAreReservedWhenTheyMayRunOut(t *testing.T) {
	t.Parallel()
	onVolume(t, fmt.Sprintf(",nr_inodes=%d", diskguard.PlentyOfFiles+20), nil, func(t *testing.T, v *volume) {
		v.reserved(true)
		v.reservedFiles(0) // at the end of the look that made the reserve of bytes, which makes files too
		v.take(filepath.Join(v.path, "bytes"), v.free()-2*size/100)
		for n := range 20 {
			v.take(filepath.Join(v.path, fmt.Sprint(n)), 1)
		}
		v.reservedFiles(diskguard.MostFilesReserved)
	})
}

// takeFiles makes files of a role until there are no more to be had.
func (v *volume) takeFiles(role, prefix string) {
	v.t.Helper()
	for n := range 100_000 {
		if err := unix.Mknod(v.of(role, fmt.Sprint(prefix, n)), unix.S_IFREG|0o600, 0); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			v.t.Fatal(err)
		}
	}
	v.t.Fatal("the volume takes any number of files")
}

// A role that goes on to write until it has ended, and whose file stays, leaves room for others: not all of the reserve is given free before.
func TestRoomForAfterwards(t *testing.T) {
	t.Parallel()
	onVolume(t, "", []string{"hog", "other"}, func(t *testing.T, v *volume) {
		v.reserved(true)
		instances, _ := v.instances.Get()
		runs := append(roles.Instances{}, instances...)
		runs[0].Process = &plugin.Process{PID: os.Getpid()}
		v.instances.Set(runs)
		v.take(v.of("hog", "data"), size)
		v.await("the hog is stopped", stopped("hog"))
		// It does not stop at once, and takes what it finds: the half that is given free.
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			synctest.Wait()
			info, err := os.Stat(filepath.Join(v.path, "reserve"))
			if err != nil {
				t.Fatalf("the whole reserve is free while the hog runs: %v", err)
			}
			if info.Size() == size/100&^4095/2 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d bytes are reserved", info.Size())
			}
		}
		v.take(v.of("hog", "more"), size)
		v.instances.Set(instances)
		v.reserved(false)
		if err := os.WriteFile(v.of("other", "write"), make([]byte, size/100/4), 0o600); err != nil {
			t.Errorf("another role: %v", err)
		}
	})
}

// Where inodes run out others have some as soon as the role has ended, though all of its files stay and it took what was given free before.
func TestFilesRunOut(t *testing.T) {
	t.Parallel()
	const all, reserve = 40_000, 400 // made in two steps
	onVolume(t, fmt.Sprintf(",nr_inodes=%d,mode=1777", all), []string{"hog", "other"}, func(t *testing.T, v *volume) {
		v.reserved(true)
		v.reservedFiles(reserve)
		instances, _ := v.instances.Get()
		runs := append(roles.Instances{}, instances...)
		runs[0].Process = &plugin.Process{PID: os.Getpid()}
		v.instances.Set(runs)
		v.takeFiles("hog", "a")
		full := v.await("the hog is stopped", stopped("hog"))
		if !strings.Contains(full["hog"], " files in its data directory") {
			t.Errorf("reason %q", full["hog"])
		}
		v.reservedFiles(reserve / 2)
		// It does not stop at once.
		v.takeFiles("hog", "b")
		v.instances.Set(instances)
		v.reservedFiles(0)
		// Who makes files now is another user.
		const files = reserve / 2
		script := fmt.Sprintf("for n in $(seq %d); do : > /proc/self/fd/3/other.$n || exit 1; done", files)
		at, err := os.Open(v.path) // whose path is root's alone
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = at.Close() }()
		other := exec.Command("/bin/sh", "-c", script)
		other.ExtraFiles = []*os.File{at}
		other.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if output, err := other.CombinedOutput(); err != nil {
			t.Errorf("another user cannot make %d files: %v: %s", files, err, output)
		}
		// There is room again: the files are reserved again, by the next core too.
		v.end()
		if err := os.RemoveAll(v.of("hog")); err != nil {
			t.Fatal(err)
		}
		v.start()
		v.reservedFiles(reserve)
		if info, err := os.Stat(filepath.Join(v.path, "reserve.d")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory of the reserved files: %v, %v", info, err)
		}
		v.end()
		v.start()
		v.reservedFiles(reserve)
		v.reserved(true)
	})
}

// Where no role is to blame the reserved files are given free all at once.
func TestFilesRunOutByOthers(t *testing.T) {
	t.Parallel()
	onVolume(t, ",nr_inodes=4000", []string{"small", "store"}, func(t *testing.T, v *volume) {
		v.reservedFiles(40)
		v.takeFiles("store", "a")
		v.reservedFiles(0)
		if full, _ := v.guard.Full().Get(); len(full) > 0 {
			t.Errorf("%v", full)
		}
	})
}
