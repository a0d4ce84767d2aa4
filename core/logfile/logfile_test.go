package logfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/logfile"
)

// child says that the test binary is to panic with its log in a file.
const child = "LOGFILE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(child); path != "" {
		file, err := logfile.Open(path, logfile.WithStandardError(), logfile.WithLimit(64))
		if err != nil {
			panic(err)
		}
		for n := range 10 {
			fmt.Fprintf(file, "line %d of the child\n", n)
		}
		panic("the child's last word")
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Every line is in one of the two files, whole and in order, and neither is larger than the limit.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reeved.log")
	if err := os.WriteFile(path, []byte("from the last start\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := logfile.Open(path, logfile.WithLimit(1000))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := range 50 {
				if _, err := fmt.Fprintf(file, "writer %d line %03d\n", w, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for _, name := range []string{path, path + ".1"} {
		content := read(t, name)
		if len(content) > 1000 || len(content) == 0 {
			t.Errorf("%s has %d bytes", name, len(content))
		}
		for line := range strings.Lines(content) {
			if len(line) != len("writer 0 line 000\n") {
				t.Errorf("a torn line: %q", line)
			}
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestFirstLogIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reeved.log")
	for _, line := range []string{"one\n", "two\n"} {
		file, err := logfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, path); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

// Where no new file can be begun, the log goes on in the old one, which does not grow for ever.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reeved.log")
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := logfile.Open(path, logfile.WithLimit(400))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	say := func(lines int) {
		for n := range lines {
			if _, err := fmt.Fprintf(file, "line %02d of many\n", n); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(35)
	got := read(t, path)
	if n := strings.Count(got, "of many\n"); n != 35 || !strings.Contains(got, "a new log file cannot be begun") {
		t.Errorf("%d lines:\n%s", n, got)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the new file was left: %v", err)
	}
	say(1000)
	if got := read(t, path); len(got) > 3*400 || !strings.HasSuffix(got, "line 999 of many\n") {
		t.Errorf("%d bytes:\n%s", len(got), got)
	}
}

// An operator may empty the log or take it away. What is kept of the one before stays then.
func TestALogThatSomebodyElseEmpties(t *testing.T) {
	for name, empty := range map[string]func(string) error{
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.WriteFile(path+".1", []byte("earlier\n"), 0o600), os.WriteFile(path, bytes.Repeat([]byte("u"), 1000), 0o600)); err != nil {
			t.Fatal(err)
		}
		file, err := logfile.Open(path, logfile.WithLimit(1000))
		if err != nil {
			t.Fatal(err)
		}
		if err := empty(path); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte("now\n")); err != nil {
			t.Fatal(err)
		}
		if now, before := read(t, path), read(t, path+".1"); now != "now\n" || before != "earlier\n" {
			t.Errorf("%s: the log is %q, and the one before %q", name, now, before)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Where no other file can be made, as where there are no more inodes or descriptors, the log keeps its name, and another is begun as soon as it can.
func TestNoNewFileCanBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reeved.log")
	file, err := logfile.Open(path, logfile.WithLimit(100))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	say := func(from, to int) {
		for n := from; n < to; n++ {
			if _, err := fmt.Fprintf(file, "line %02d of forty\n", n); err != nil {
				t.Fatal(err)
			}
		}
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	say(0, 10)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".1"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the file was put away: %v", err)
	}
	if got := read(t, path); strings.Count(got, "of forty\n") != 10 {
		t.Errorf("the log:\n%s", got)
	}
	say(10, 40)
	if got := read(t, path); !strings.HasSuffix(got, "line 39 of forty\n") || len(got) > 100 {
		t.Errorf("the log:\n%s", got)
	}
	if got := read(t, path+".1"); len(got) > 100 {
		t.Errorf("the log before:\n%s", got)
	}
}

// While a core takes over, two instances of a role may have one log.
func TestTwoOfOneLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.log")
	var files []*logfile.File
	for range 2 {
		file, err := logfile.Open(path, logfile.WithLimit(100))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		files = append(files, file)
	}
	say := func(file *logfile.File, text string) {
		if _, err := fmt.Fprintln(file, text); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		say(files[0], strings.Repeat("x", 98))
	}
	say(files[1], "the other's line")
	if got := read(t, path); got != "the other's line\n" {
		t.Errorf("the log:\n%s", got)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	// One with a reader and one without.
	read, unread := filepath.Join(dir, "read"), filepath.Join(dir, "unread")
	if err := errors.Join(unix.Mkfifo(read, 0o600), unix.Mkfifo(unread, 0o600)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(read, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, path := range []string{dir, link, read, unread, filepath.Join(dir, "none", "log"), "/dev/null"} {
		if file, err := logfile.Open(path); err == nil {
			t.Errorf("%s: %v, %v", path, file, err)
		}
	}
}

// A panic of the process is the last word in its log, over a rotation too.
func TestPanicIsLogged(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "child.log")
	command := exec.Command(executable)
	command.Env = append(os.Environ(), child+"="+path)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Run(); err == nil {
		t.Fatal("the child did not panic")
	}
	if got := read(t, path); !strings.Contains(got, "panic: the child's last word") || !strings.Contains(got, "line 9 of the child") || strings.Contains(got, "line 1 ") {
		t.Errorf("the log:\n%s", got)
	}
	if stderr.Len() > 0 {
		t.Errorf("on the former standard error: %s", &stderr)
	}
}
