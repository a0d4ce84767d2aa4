package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endTimeout is how long a process of this machine may take to end when it is told to.
const endTimeout = time.Minute

// process is one that this package started. It is ended by its own handle, never by a name.
type process struct {
	command *exec.Cmd
	// gone is closed when it has ended.
	gone chan struct{}
	err  error
}

// start starts a program that writes to a file.
func start(output io.Writer, program string, arguments ...string) (*process, error) {
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = output, output
	// A terminal's Ctrl-C is for the test, which ends what it started. What a test leaves that is killed ends with it: the kernel ends it with the thread that
	// started it, which therefore stays for as long as it runs.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{command: command, gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			p.err = command.Wait()
		}
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// end ends the process, at once.
func (p *process) end() error {
	select {
	case <-p.gone:
		return nil
	default:
	}
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.wait(endTimeout)
}

// cpu is how much of a processor's time it has used.
func (p *process) cpu() time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	// User and system time are the 12th and 13th of what follows the program's name, in hundredths of a second on every Linux.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// wait waits for its end.
func (p *process) wait(timeout time.Duration) error {
	select {
	case <-p.gone:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("the process %d has not ended within %s", p.command.Process.Pid, timeout)
	}
}

// dial connects to a Unix socket that a process is about to serve.
func (p *process) dial(ctx context.Context, path string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ticker.C:
		case <-p.gone:
			return nil, fmt.Errorf("%s has ended: %w", p.command.Path, errors.Join(p.err, err))
		case <-ctx.Done():
			return nil, err
		}
	}
}

// awaitSocket waits until a process has bound its socket. It is not connected to: swtpm ends with its first connection.
func (p *process) awaitSocket(path string, timeout time.Duration) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.gone:
			return fmt.Errorf("%s has ended: %w", p.command.Path, p.err)
		case <-deadline:
			return fmt.Errorf("%s has made no socket %s within %s", p.command.Path, path, timeout)
		}
	}
}
