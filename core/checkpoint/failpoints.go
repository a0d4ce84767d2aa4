//go:build failpoints

package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// failpoints is where the process ends, and where it says which steps it takes.
type failpoints struct {
	mu   sync.Mutex
	step Step
	// left is how often the step is still passed before the process ends at it.
	left int
	log  string
}

// points is read once, when the first step is taken: a process that takes none is not changed by anything in its environment.
var points = sync.OnceValue(func() *failpoints {
	p, err := parse(os.Getenv("REEVE_FAILPOINT"))
	if err != nil {
		// A test that names a step which there is not must not pass as if it had been taken.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	p.log = os.Getenv("REEVE_FAILPOINT_LOG")
	return p
})

// parse reads <step>[:n]. The name of a step may have colons in it, and end in a number.
func parse(text string) (*failpoints, error) {
	if text == "" {
		return &failpoints{}, nil
	}
	p := &failpoints{step: Step(text), left: 1}
	if i := strings.LastIndexByte(text, ':'); i > 0 && known(Step(text[:i])) {
		if n, err := strconv.Atoi(text[i+1:]); err == nil && n > 0 {
			p.step, p.left = Step(text[:i]), n
		}
	}
	if !known(p.step) {
		return nil, fmt.Errorf("checkpoint: REEVE_FAILPOINT=%s: there is no step of that name: %v, %s<file>, %s<file> and %s<step>", text, All(), writePrefix, writtenPrefix, volumePrefix)
	}
	return p, nil
}

func known(step Step) bool {
	if slices.Contains(All(), step) {
		return true
	}
	for _, prefix := range []string{writePrefix, writtenPrefix, volumePrefix} {
		if name, ok := strings.CutPrefix(string(step), prefix); ok && name != "" && name == filepath.Base(name) {
			return true
		}
	}
	return false
}

// At says that a step begins.
func At(step Step) {
	p := points()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log != "" {
		if err := note(p.log, step); err != nil {
			fmt.Fprintln(os.Stderr, "checkpoint: REEVE_FAILPOINT_LOG:", err)
			os.Exit(2)
		}
	}
	if step != p.step {
		return
	}
	if p.left--; p.left == 0 {
		checkpoint.End() // the lock is held
	}
}

// note appends a step in one write, so that several processes may share the file.
func note(path string, step Step) error {
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(log, step); err != nil {
		return err
	}
	return log.Close()
}
