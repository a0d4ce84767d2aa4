package filewatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// open watches a path.
func open(t *testing.T, watch func(string) (*Watch, error), path string) *Watch {
	t.Helper()
	w, err := watch(path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// instances counts the inotify instances of this process.
func instances(t *testing.T) (count int) {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink("/proc/self/fd/" + descriptor.Name()); err == nil && target == "anon_inode:inotify" {
			count++
		}
	}
	return count
}

// receive waits for a signal; the time limit of the test ends what hangs.
func receive(w *Watch) { <-w.Changed }

func TestOneInstanceServesAllFiles(t *testing.T) {
	var w Watcher
	dir := t.TempDir()
	var watches []*Watch
	var files []*os.File
	for n := range 20 {
		file, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		files, watches = append(files, file), append(watches, open(t, w.File, file.Name()))
	}
	if count := instances(t); count != 1 {
		t.Errorf("%d inotify instances", count)
	}
	write := func(n int) {
		if _, err := files[n].WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	for n, watch := range watches {
		write(n)
		receive(watch)
	}
	// What is written to the others signals to nobody else.
	watches[0].Stop()
	write(0)
	write(19)
	receive(watches[19])
	for _, watch := range watches[1:19] {
		select {
		case <-watch.Changed:
			t.Error("a file changed that nobody wrote to")
		default:
		}
		watch.Stop()
		watch.Stop()
	}
	watches[19].Stop()
	w.Wait()
	if count := instances(t); count != 0 {
		t.Errorf("%d inotify instances are left", count)
	}
	again := open(t, w.File, files[0].Name())
	write(0)
	receive(again)
	again.Stop()
	w.Wait()
}

// Two watch one file: the kernel has one watch for them.
func TestTwoWatchOneFile(t *testing.T) {
	var w Watcher
	path := filepath.Join(t.TempDir(), "file")
	write(t, path)
	one, two := open(t, w.File, path), open(t, w.File, path)
	one.Stop()
	if two.Closed() {
		t.Error("nobody has closed it")
	}
	write(t, path)
	for receive(two); !two.Closed(); receive(two) {
	}
	two.Stop()
	w.Wait()
}

func TestAName(t *testing.T) {
	var w Watcher
	path := filepath.Join(t.TempDir(), "file")
	watch := open(t, w.Name, path)
	write(t, path) // which makes it
	receive(watch)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path+".2")
	if err := os.Rename(path+".2", path); err != nil {
		t.Fatal(err)
	}
	receive(watch)
	watch.Stop()
	w.Wait()
}

// The kernel drops events that are not read in time, and does not say of which files.
func TestLostEventsSignalToAll(t *testing.T) {
	var w Watcher
	dir := t.TempDir()
	one, two := open(t, w.Name, filepath.Join(dir, "one")), open(t, w.Name, filepath.Join(t.TempDir(), "two"))
	var lost [unix.SizeofInotifyEvent]byte
	none := int32(-1)
	binary.NativeEndian.PutUint32(lost[:], uint32(none))
	binary.NativeEndian.PutUint32(lost[4:], unix.IN_Q_OVERFLOW)
	w.wake(w.instance, lost[:], false)
	receive(one)
	receive(two)
	one.Stop()
	two.Stop()
	w.Wait()
}

func TestWhatIsNotThere(t *testing.T) {
	var w Watcher
	if watch, err := w.File(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file is watched that is not there")
		watch.Stop()
	}
	w.Wait()
	if count := instances(t); count != 0 {
		t.Errorf("%d inotify instances are left", count)
	}
}

// Without an instance of inotify, those who watch look again and again.
func TestThereIsNoInstance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	var w Watcher
	watch, err := w.File(path)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil || watch.Polled == nil {
		t.Fatalf("%v, %v", watch, err)
	}
	receive(watch)
	receive(watch)
	watch.Stop()
	watch.Stop()
	w.Wait()
}

// Whatever comes to a directory or leaves it wakes who watches it, and so does its own end.
func TestDirectory(t *testing.T) {
	var w Watcher
	dir := filepath.Join(t.TempDir(), "d")
	file, below := filepath.Join(dir, "file"), filepath.Join(dir, "below")
	for _, change := range []func() error{
		func() error { return os.Mkdir(below, 0o700) },
		func() error { return os.WriteFile(file, nil, 0o600) },
		func() error { return os.Rename(file, filepath.Join(below, "file")) },
		func() error { return os.RemoveAll(below) },
		func() error { return os.Rename(dir, dir+".moved") },
		func() error { return os.Remove(dir) },
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		watch := open(t, w.Directory, dir)
		if watch.Polled != nil {
			t.Fatal(watch.Polled)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		receive(watch)
		watch.Stop()
	}
	if _, err := w.Directory(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	w.Wait()
}
