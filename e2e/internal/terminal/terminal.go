// Package terminal is a shell in which a test does what a page says, one command after another: what `cd` and `export PATH` do stays, as for somebody who sits there.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// timeout is how long a command may take: the longest ones compile.
const timeout = 15 * time.Minute

// Terminal is where commands are run. It belongs to one test.
type Terminal struct {
	// Directory is where the next command is run.
	Directory string
	// Path is where programs are looked for.
	Path string

	// variables are the rest of the environment.
	variables []string
	// state is a file in which each command leaves where it has led to.
	state string
}

// New returns a terminal in a directory, with the environment of the test and further variables.
func New(t testing.TB, directory string, variables ...string) *Terminal {
	t.Helper()
	return &Terminal{Directory: directory, Path: os.Getenv("PATH"), variables: variables, state: filepath.Join(t.TempDir(), "state")}
}

// Result is how a command ended.
type Result struct {
	Command string
	// Output is what it wrote to the terminal, standard output and standard error.
	Output string
	// Code is its exit code; -1: a signal has ended it, or it could not be run.
	Code int
}

// String is the result for people who look at a failed test.
func (r Result) String() string {
	return fmt.Sprintf("%s: exit code %d\n%s", r.Command, r.Code, r.Output)
}

// script runs a command, and says where it has led to.
const script = `eval "$1"
code=$?
printf '%s\n%s' "$PWD" "$PATH" >"$2"
exit $code`

// Run runs a command.
func (s *Terminal) Run(t testing.TB, line string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, "/bin/bash", "-c", script, "bash", line, s.state)
	command.Dir = s.Directory
	command.Env = append(append(os.Environ(), s.variables...), "PATH="+s.Path, "PWD="+s.Directory, "LANG=C.UTF-8")
	// A session of its own. When the time is up all of it is ended, make and its compilers too.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	// A node in the background has the files of the command open if it is at fault: say so, and do not wait for it.
	command.WaitDelay = 5 * time.Second
	output, err := command.CombinedOutput()
	result := Result{Command: line, Output: string(output), Code: command.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		result.Code = -1
		result.Output += "\n" + err.Error()
	}
	if text, err := os.ReadFile(s.state); err == nil {
		if directory, path, found := strings.Cut(string(text), "\n"); found {
			s.Directory, s.Path = directory, path
		}
	}
	return result
}

// Start runs a command that goes on, and returns once it has said a text. stop interrupts it, as Ctrl-C does, and returns when it has ended; so does the end of the test.
func (s *Terminal) Start(t testing.TB, line, says string) (stop func()) {
	t.Helper()
	command := exec.Command("/bin/bash", "-c", line)
	command.Dir = s.Directory
	command.Env = append(append(os.Environ(), s.variables...), "PATH="+s.Path, "PWD="+s.Directory, "LANG=C.UTF-8")
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said := &watched{says: says, found: make(chan struct{})}
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// How it ended is in the state of the process.
		_ = command.Wait()
	}()
	stop = func() {
		select {
		case <-ended:
		default:
			// All of the process group, as a terminal does it.
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGINT)
		}
		select {
		case <-ended:
		case <-time.After(timeout):
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	t.Cleanup(stop)
	select {
	case <-said.found:
	case <-ended:
		t.Fatalf("%s has ended: %s", line, said)
	case <-time.After(timeout):
		t.Fatalf("%s does not say %q: %s", line, says, said)
	}
	return stop
}

// watched keeps what is written, and says when a text was.
type watched struct {
	says  string
	found chan struct{}

	mu   sync.Mutex
	text strings.Builder
	told bool
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if !w.told && strings.Contains(w.text.String(), w.says) {
		w.told = true
		close(w.found)
	}
	return len(p), nil
}

// String is what was written.
func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
