package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Self is the executable of this process, whatever path it has, or none. It is the one thing that a confined role may execute.
const Self = "/proc/self/exe"

// GOGC is how early the garbage collector of a program begins: when half as much again as what lives is in use, where Go's own is as much again. What Kubernetes keeps lives long and is little changed,
// so that less memory costs little time. With 20 a node that runs pods has 711 MB in place of 761, and kube-apiserver takes half as long again to become ready and a tenth longer for a write.
const GOGC = "50"

// Program is what is to run.
type Program struct {
	// Executable is the file to run: Self, except in tests.
	Executable string
	// Name is the name under which the program is started, and its first argument.
	Name      string
	Arguments []string
	// Environment is the program's whole environment, except for GOGC, which Run adds.
	Environment []string
	// Before, unless it is nil, is called before each start; with an error the program is not started, and it is tried again as if it had ended.
	Before func() error
	// Grace is how long the program may take to end when it is asked to.
	Grace time.Duration
	// Log receives what the program writes.
	Log hclog.Logger
	// See is called with every change of the program's state, one after another.
	See func(State)
	// FirstRetry is the wait before the program is started again for the first time, 1 s if it is 0. It doubles with every end, up to a minute, until the program has run for as long as that.
	FirstRetry time.Duration
}

// State is how a program is.
type State struct {
	// PID is 0 while the program does not run.
	PID int
	// Ended is why it does not: how it ended the last time, or why it could not be started. Empty: it is about to be started for the first time.
	Ended string
	// Again is when it is started again.
	Again time.Time
	// Starts is how often it was started.
	Starts int
}

const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// Run keeps the program running until ctx is done, and has ended it when it returns.
func (p Program) Run(ctx context.Context) {
	first := p.FirstRetry
	if first == 0 {
		first = firstRetry
	}
	state, wait := State{}, first
	for ctx.Err() == nil {
		began := time.Now()
		err := p.once(ctx, func(pid int) {
			state.PID, state.Starts = pid, state.Starts+1
			p.See(state)
		})
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) >= maxRetry {
			wait = first
		}
		state.PID, state.Ended, state.Again = 0, err.Error(), time.Now().Add(wait)
		p.See(state)
		p.Log.Warn("a program ended and is started again", "program", p.Name, "reason", err, "in", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, maxRetry)
	}
	state.PID, state.Ended, state.Again = 0, "stopped", time.Time{}
	p.See(state)
}

// lastWords is how long the output of a program that has ended is read.
const lastWords = 10 * time.Second

// once runs the program once. The error says how it ended.
func (p Program) once(ctx context.Context, started func(pid int)) error {
	if p.Before != nil {
		if err := p.Before(); err != nil {
			return err
		}
	}
	// The kernel ends the program with the thread that started it: this one, which waits here for as long as the program runs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for what it writes: %w", err)
	}
	// Its arguments are those of the program without its name, which is the first: the executable tells by it as what it was started.
	command := exec.CommandContext(ctx, p.Executable, p.Arguments...)
	command.Args[0] = p.Name
	command.Env = append(slices.Clone(p.Environment), "GOGC="+GOGC)
	command.Stdout, command.Stderr = write, write
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = p.Grace
	err = command.Start()
	_ = write.Close() // the program has its own
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), read.Close())
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		relay(read, p.Log)
	}()
	started(command.Process.Pid)
	err = command.Wait()
	// A child of the program may hold the pipe open, for as long as it likes.
	_ = read.SetReadDeadline(time.Now().Add(lastWords))
	<-written
	_ = read.Close()
	switch exit := (*exec.ExitError)(nil); {
	case errors.As(err, &exit):
		return fmt.Errorf("it ended with %s", exit)
	case err != nil:
		return err
	}
	return errors.New("it ended with exit status 0")
}

// maxLine is how much of a line is kept.
const maxLine = 8 << 10

// relay writes the lines of a program to the role's log, until its output ends or is read no more.
func relay(from io.Reader, log hclog.Logger) {
	reader := bufio.NewReaderSize(from, maxLine)
	cut := false
	for {
		line, long, err := reader.ReadLine()
		if len(line) > 0 && !cut {
			level, text := parse(string(line))
			log.Log(level, text)
		}
		if cut = long; err != nil {
			return
		}
	}
}

// parse reads a line of klog's, "I1125 03:58:59.123456       7 file.go:12] text", or of logrus', "time=… level=info msg=…". Of others the whole is the text.
func parse(line string) (hclog.Level, string) {
	if strings.HasPrefix(line, "time=") {
		return parseFields(line)
	}
	level, known := map[byte]hclog.Level{'I': hclog.Info, 'W': hclog.Warn, 'E': hclog.Error, 'F': hclog.Error}[line[0]]
	if !known || len(line) < 30 || line[5] != ' ' {
		return hclog.Info, line
	}
	for _, digit := range line[1:5] {
		if digit < '0' || digit > '9' {
			return hclog.Info, line
		}
	}
	for at := 6; at+1 < len(line) && at < 120; at++ {
		if line[at] == ']' && line[at+1] == ' ' {
			return level, line[at+2:]
		}
	}
	return hclog.Info, line
}

// parseFields reads a line of logrus': what comes after its level is the text.
func parseFields(line string) (hclog.Level, string) {
	_, rest, ok := strings.Cut(line, " level=")
	name, text, more := strings.Cut(rest, " ")
	if !ok || !more {
		return hclog.Info, line
	}
	if name == "fatal" || name == "panic" {
		return hclog.Error, text
	}
	if level := hclog.LevelFromString(name); level != hclog.NoLevel {
		return level, text
	}
	return hclog.Info, line
}
