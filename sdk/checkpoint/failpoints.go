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
	// file is where a test writes down where the role is to end.
	file = "failpoint"
	// list is where a test finds which steps there are.
	list = "failpoint-steps"
)

var used struct {
	sync.Mutex
	directory string
	steps     []Step
}

// Use says which steps there are, and which directory is the role's own. It writes the steps there.
func Use(directory string, steps []Step) {
	used.Lock()
	defer used.Unlock()
	used.directory, used.steps = directory, steps
	var lines strings.Builder
	for _, step := range steps {
		fmt.Fprintln(&lines, step)
	}
	if err := replace(filepath.Join(directory, list), lines.String()); err != nil {
		give(err)
	}
}

// At takes a point: Before and After do.
func At(point Step) {
	used.Lock()
	defer used.Unlock()
	if used.directory == "" {
		return // no role runs: a test of the package, or what a plugin does before it is started
	}
	name := Step(strings.TrimPrefix(strings.TrimPrefix(string(point), before), after))
	if !slices.Contains(used.steps, name) {
		// A test that goes by the list would never stop the role here.
		give(fmt.Errorf("the step %s is not one of those that the role has named: %v", name, used.steps))
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

// replace gives a file another content at once: a test reads it at any time.
func replace(path, content string) error {
	draft := path + "~"
	if err := os.WriteFile(draft, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

func give(err error) {
	fmt.Fprintln(os.Stderr, "checkpoint:", err)
	os.Exit(2)
}

// End ends the process as if it had been killed. It does not return: nothing is tidied up, and no further step is taken meanwhile if the caller holds what orders them.
func End() {
	_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
	select {}
}
