package roletest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// process is the plugin's process for go-plugin. Its standard error goes to a file: go-plugin would parse it, and an unexpected line of JSON would
// end the test's process.
type process struct {
	command *exec.Cmd
	stdout  *os.File // the reading end
	ended   chan struct{}
	started bool
	once    sync.Once
}

func newProcess(executable string, environment []string, log *os.File) *process {
	command := exec.Command(executable)
	command.Env = environment
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &process{command: command, ended: make(chan struct{})}
}

func (p *process) Start(context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = write.Close() }()
	p.stdout, p.command.Stdout = read, write
	if err := p.command.Start(); err != nil {
		_ = read.Close()
		close(p.ended)
		return err
	}
	p.started = true
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // ProcessState says how it ended
	}()
	return nil
}

func (p *process) Stdout() io.ReadCloser { return p.stdout }

func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (p *process) Wait(context.Context) error {
	<-p.ended
	p.once.Do(func() { _ = p.stdout.Close() })
	return nil
}

// Kill kills the process and its process group.
func (p *process) Kill(context.Context) error {
	if !p.started {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	default:
		return syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	}
}

func (p *process) ID() string {
	if !p.started {
		return ""
	}
	return strconv.Itoa(p.command.Process.Pid)
}

func (p *process) Name() string { return p.command.Path }

func (p *process) Diagnose(context.Context) string { return "" }

func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
