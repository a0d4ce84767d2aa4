package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// commandTimeout is how long any command may take: longer than the time-outs that the commands have themselves.
const commandTimeout = 3 * time.Minute

// Result is what a command said and how it ended.
type Result struct {
	Command        string
	Stdout, Stderr string
	// Code is the exit code; -1 if the command was ended by a signal.
	Code int
}

// String is the result for people who look at a failed test.
func (r Result) String() string {
	return fmt.Sprintf("%s: exit code %d\n--- stdout\n%s--- stderr\n%s---", r.Command, r.Code, r.Stdout, r.Stderr)
}

// Running is a command that has not been waited for.
type Running struct {
	// PID is the process of the command, which leads a session of its own.
	PID            int
	command        *exec.Cmd
	stdout, stderr buffer
	ended          chan struct{}
	result         Result
}

// Done is closed when the command has ended.
func (r *Running) Done() <-chan struct{} { return r.ended }

// kill ends the command at once, and returns when it has ended.
func (r *Running) kill() {
	_ = r.command.Process.Kill() // it may have ended
	<-r.ended
}

// Wait returns how the command ended. It fails the test if that takes longer than timeout.
func (r *Running) Wait(t testing.TB, timeout time.Duration) Result {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(timeout):
		t.Fatalf("%s has not ended within %s\n--- stdout\n%s--- stderr\n%s---", r.command, timeout, r.stdout.String(), r.stderr.String())
	}
	return r.result
}

// Output is what the command has printed so far, on standard output and on standard error.
func (r *Running) Output() (stdout, stderr string) { return r.stdout.String(), r.stderr.String() }

// Signal sends a signal to the command alone.
func (r *Running) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := r.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Interrupt does what Ctrl-C does on a terminal: SIGINT for every process of the foreground group.
func (r *Running) Interrupt(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(-r.PID, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// buffer is a strings.Builder that can be read while a command writes.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lastLine is the last line that was written to its end; empty if there is none.
func (b *buffer) lastLine() string {
	text := b.String()
	text = text[:max(0, strings.LastIndexByte(text, '\n'))]
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// start starts a program as the cluster's user, with nothing in its environment but what every login has.
func (c *Cluster) start(t testing.TB, program string, arguments ...string) *Running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	program, arguments = c.wrap(program, arguments)
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = c.Home
	command.Env = c.environment()
	// A session of its own, so that a signal for its process group is for it and its children alone.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.credential()}
	// A detached node has the files of the command open if it is at fault: say so, and do not wait for it.
	command.WaitDelay = 5 * time.Second
	r := &Running{command: command, ended: make(chan struct{})}
	command.Stdout, command.Stderr = &r.stdout, &r.stderr
	if err := c.startCommand(command); err != nil {
		cancel()
		t.Fatal(err)
	}
	r.PID = command.Process.Pid
	c.commands.Go(func() {
		defer close(r.ended)
		defer cancel()
		err := command.Wait()
		r.result = Result{Command: command.String(), Stdout: r.stdout.String(), Stderr: r.stderr.String(), Code: command.ProcessState.ExitCode()}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			r.result.Code = -1
			r.result.Stderr += "\n" + err.Error()
		}
	})
	return r
}

// wrap returns the command line that starts a program with the cluster's limits.
func (c *Cluster) wrap(program string, arguments []string) (wrapper string, all []string) {
	if len(c.through) == 0 {
		return program, arguments
	}
	return c.through[0], slices.Concat(c.through[1:], []string{program}, arguments)
}

// Start starts reeve for this cluster.
func (c *Cluster) Start(t testing.TB, arguments ...string) *Running {
	t.Helper()
	return c.start(t, c.Programs.Reeve(), append(arguments, "--dir", c.Directory)...)
}

// Reeve runs reeve for this cluster.
func (c *Cluster) Reeve(t testing.TB, arguments ...string) Result {
	t.Helper()
	return c.Start(t, arguments...).Wait(t, commandTimeout+time.Second)
}

// MustReeve is Reeve, and fails the test if the command does.
func (c *Cluster) MustReeve(t testing.TB, arguments ...string) Result {
	t.Helper()
	result := c.Reeve(t, arguments...)
	if result.Code != 0 {
		t.Fatal(result)
	}
	return result
}

// StartAlone starts reeve as the cluster's user, and leaves to the arguments which cluster is meant.
func (c *Cluster) StartAlone(t testing.TB, arguments ...string) *Running {
	t.Helper()
	return c.start(t, c.Programs.Reeve(), arguments...)
}

// StartNode starts a core for a node with parameters of its own, as whoever has set it up would: also with variables that a test needs. Its log is in a file beside the
// parameters.
func (c *Cluster) StartNode(t testing.TB, program, parameters string, environment ...string) *Running {
	t.Helper()
	return c.startCore(t, program, parameters, filepath.Join(filepath.Dir(parameters), "reeved.log"), environment)
}

// StartProgram starts a program as the cluster's user.
func (c *Cluster) StartProgram(t testing.TB, program string, arguments ...string) *Running {
	t.Helper()
	return c.start(t, program, arguments...)
}

// Run runs a program as the cluster's user.
func (c *Cluster) Run(t testing.TB, program string, arguments ...string) Result {
	t.Helper()
	return c.start(t, program, arguments...).Wait(t, commandTimeout+time.Second)
}
