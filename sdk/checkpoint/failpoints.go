//go:build failpoints

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// file says where the role must end.
	file = "failpoint"
	// list lists the steps for tests.
	list = "failpoint-steps"
	// passed names each point that the role has come to, once for each of its processes.
	passed = "failpoint-passed"
)

var used struct {
	sync.Mutex
	directory string
	steps     []Step
	passed    map[Step]bool
}

// Use sets the steps and the role's own directory, and writes the steps there.
func Use(directory string, steps []Step) {
	used.Lock()
	defer used.Unlock()
	used.directory, used.steps, used.passed = directory, steps, make(map[Step]bool)
	var lines strings.Builder
	for _, step := range steps {
		fmt.Fprintln(&lines, step)
	}
	if err := replace(filepath.Join(directory, list), lines.String()); err != nil {
		give(err)
	}
}

// At passes a point, for Before and After.
func At(point Step) {
	used.Lock()
	defer used.Unlock()
	if used.directory == "" {
		return // no role runs: a test of the package, or a plugin before Start
	}
	name := Step(strings.TrimPrefix(strings.TrimPrefix(string(point), before), after))
	if !slices.Contains(used.steps, name) {
		// A test that uses the list would never stop the role here.
		give(fmt.Errorf("the step %s is not in the role's list: %v", name, used.steps))
	}
	// Until the role ends here, or goes on: a test replaces the file under the same lock, or would write in again what is taken out.
	unlock, err := lock(used.directory)
	if err != nil {
		give(err)
	}
	defer unlock()
	if !used.passed[point] {
		used.passed[point] = true
		if err := note(filepath.Join(used.directory, passed), point); err != nil {
			give(err)
		}
	}
	path := filepath.Join(used.directory, file)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		give(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for n, line := range lines {
		wanted, count, _ := strings.Cut(line, " ")
		if Step(wanted) != point {
			continue
		}
		times, err := strconv.Atoi(count)
		if err != nil {
			times = 1
		}
		if times > 1 {
			lines[n] = fmt.Sprint(wanted, " ", times-1)
		} else {
			lines = slices.Delete(lines, n, n+1)
		}
		if err := replace(path, strings.Join(lines, "\n")+"\n"); err != nil {
			give(err)
		}
		if times <= 1 {
			End()
		}
		return
	}
}

// lock locks a directory against tests.
func lock(path string) (unlock func(), err error) {
	directory, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	return func() { _ = directory.Close() }, nil
}

// replace replaces a file atomically, because a test may read it at any time.
func replace(path, content string) error {
	draft := path + "~"
	if err := os.WriteFile(draft, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// note appends a point in one write: a test may read the file at any time.
func note(path string, point Step) error {
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(log, point)
	return errors.Join(err, log.Close())
}

func give(err error) {
	fmt.Fprintln(os.Stderr, "checkpoint:", err)
	os.Exit(2)
}

// End kills the process and does not return: nothing is cleaned up, and no further step runs if the caller holds the lock that orders them.
func End() {
	_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
	select {}
}
