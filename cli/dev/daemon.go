package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/netns"
	"github.com/reeveproject/reeve/cli/output"
)

// Daemon is a reeved that this process has started.
type Daemon struct {
	directory *Directory
	command   *exec.Cmd
	process   *process
	// logStart is where its log begins in the log file.
	logStart int64
}

// Start starts reeved in the directory. Detached, it is in a session of its own and outlives the caller. Otherwise it is in a process group
// of its own, so that a terminal's Ctrl-C reaches the caller alone, and it is told to end if the caller dies; the calling goroutine must then
// stay locked to its thread until the daemon has ended, because it is the thread's death that the kernel looks at. again lets the parameters make a node that already
// made one.
func (d *Directory) Start(reeved string, detached, again bool) (*Daemon, error) {
	log, err := os.OpenFile(d.LogFile(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Refused, err, "cannot write the log of reeved", "Run reeve as the user who made the directory.")
	}
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	command := exec.Command(reeved, "--parameters", d.ParametersFile())
	if again {
		command.Args = append(command.Args, "--again")
	}
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if detached {
		command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	start := command.Start
	if d.network != nil {
		start = func() error { return netns.In(d.Namespace(), command.Start) }
	}
	if err := start(); err != nil {
		return nil, fault.Wrap(fault.NotFound, err, "cannot start reeved", "Run `make build`; reeved must be in the directory of reeve.")
	}
	process, err := openProcess(command.Process.Pid)
	if err != nil {
		// Our own child, which nobody has waited for: its ID cannot be another one's.
		return nil, errors.Join(fmt.Errorf("pidfd of reeved: %w", err), command.Process.Kill(), command.Wait())
	}
	return &Daemon{directory: d, command: command, process: process, logStart: info.Size()}, nil
}

// PID returns the process ID of reeved.
func (d *Daemon) PID() int { return d.process.pid }

// Wait returns nil when reeved has ended, and otherwise the context's error.
func (d *Daemon) Wait(ctx context.Context) error { return d.process.wait(ctx) }

// Stop ends reeved, which first stops all roles, and returns when it has ended. When ctx ends before, reeved is killed, and the error says that its
// roles may be left.
func (d *Daemon) Stop(ctx context.Context) error {
	if err := d.process.signal(unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	if d.process.wait(ctx) == nil {
		return nil
	}
	_ = d.process.signal(unix.SIGKILL)
	_ = d.process.wait(context.WithoutCancel(ctx))
	return fault.New(fault.Failed, "reeved did not stop in time and was killed",
		"Run `reeve dev down --dir "+d.directory.whole()+"` to stop the roles that are left.")
}

// Release lets go of the daemon. If it has ended, this collects it; otherwise it runs on.
func (d *Daemon) Release() {
	if d.process.ended() {
		_ = d.command.Wait()
	} else {
		_ = d.command.Process.Release()
	}
	d.process.close()
}

// Ended says whether reeved has ended.
func (d *Daemon) Ended() bool { return d.process.ended() }

// Death explains how reeved ended, which it has.
func (d *Daemon) Death() error {
	how := "with exit status 0"
	if err := d.command.Wait(); err != nil {
		how = err.Error()
	}
	return fault.New(fault.Failed, "reeved has ended by itself ("+how+")", d.directory.shortage()+"Its log is "+d.directory.LogFile()+
		"; `reeve dev up --dir "+d.directory.whole()+"` starts it again, `reeve dev down --dir "+d.directory.whole()+"` stops the roles that it may have left.")
}

// LastLines returns the last lines that this daemon wrote to its log, each of them indented and clean for a terminal; empty if there are none.
func (d *Daemon) LastLines(count int) string {
	log, err := os.Open(d.directory.LogFile())
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	const enough = 64 << 10
	start := d.logStart
	if info, err := log.Stat(); err == nil && info.Size()-start > enough {
		start = info.Size() - enough
	}
	var lines []string
	scanner := bufio.NewScanner(io.NewSectionReader(log, start, enough))
	scanner.Buffer(nil, enough)
	for scanner.Scan() {
		lines = append(lines, "  "+output.Clean(scanner.Text()))
	}
	if len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	return strings.Join(lines, "\n")
}
