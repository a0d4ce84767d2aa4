package measures

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to stop: reeved gives each role 10 s.
const stopTimeout = 30 * time.Second

// process is an executable that runs.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
	err     error
}

// startProcess runs an executable in a process group of its own, with its standard error in a file. lines receives what it prints, if it is not nil:
// as many lines as there is room for.
func startProcess(log string, lines chan<- string, executable string, arguments ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	p := &process{command: exec.Command(executable, arguments...), log: log, ended: make(chan struct{})}
	p.command.Stderr = file
	// Ctrl-C on a terminal is for the harness alone, which then stops what it has started.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var read func()
	if lines != nil {
		pipe, err := p.command.StdoutPipe()
		if err != nil {
			return nil, err
		}
		read = func() {
			for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
				select {
				case lines <- scanner.Text():
				default:
				}
			}
		}
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		if read != nil {
			read()
		}
		p.err = p.command.Wait()
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// hasEnded says whether it has ended, by itself or since it was stopped.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop ends the process and returns when it has ended.
func (p *process) stop() error {
	if p.hasEnded() {
		return fmt.Errorf("%s has ended by itself: %v\n%s", filepath.Base(p.command.Path), p.err, p.lastLines())
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.command.Process.Kill()
	<-p.ended
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed\n%s", filepath.Base(p.command.Path), stopTimeout, p.lastLines()), err)
}

// lastLines is the end of what it wrote to its standard error.
func (p *process) lastLines() string {
	content, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(len(lines)-15, 0):], "\n")
}

// line waits for a line that the process prints.
func (p *process) line(ctx context.Context, lines <-chan string) (string, error) {
	select {
	case text := <-lines:
		return text, nil
	case <-p.ended:
		return "", fmt.Errorf("%s has ended: %v\n%s", filepath.Base(p.command.Path), p.err, p.lastLines())
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// bareStore is an etcd without anything around it.
type bareStore struct {
	*process
	// address is for clients.
	address string
}

// startBareStore returns when the first write is on disk.
func (b *Bed) startBareStore(ctx context.Context, at place) (*bareStore, error) {
	lines := make(chan string, 1)
	p, err := startProcess(filepath.Join(at.work, "log"), lines, b.Programs.bench("barestore"),
		"-directory", filepath.Join(at.work, "etcd"), "-sockets", at.run)
	if err != nil {
		return nil, err
	}
	address, err := p.line(ctx, lines)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return &bareStore{process: p, address: address}, nil
}
