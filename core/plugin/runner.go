package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/role"
)

// environmentDirectory is go-plugin's variable for the directory of the plugin's socket.
const environmentDirectory = goplugin.EnvUnixSocketDir

// roleRunner is what go-plugin launches an instance with. It lets go-plugin do the handshake and nothing else: it never sees the process's
// standard error (a line of which can panic it), sees one bounded line of its standard output, and is done when the handshake is. It
// then has no goroutine left; the process is the session's alone.
type roleRunner struct {
	ctx     context.Context // of the handshake: when it ends, the process does
	command command
	log     hclog.Logger // of the core
	// socketDir is where the plugin is told to put its socket.
	socketDir string

	process *process
	outputs *output.Keeper
	output  *output.Stdout
	first   string // the first line of output
	// forget ends the dependence on ctx.
	forget func() bool
	// over is closed when go-plugin's part is over.
	over chan struct{}
	// aborted says that go-plugin gave up while the process lived.
	aborted atomic.Bool
}

var _ runner.Runner = (*roleRunner)(nil)

// handshake launches a command as go-plugin's client would and returns the process, its standard output and the path of its socket. On an error the
// process has ended and p is nil, unless it never ran.
func handshake(ctx context.Context, timeout time.Duration, log hclog.Logger, c command, outputs *output.Keeper, socketDir, tempDir string) (p *process, out *output.Stdout, socket string, err error) {
	r := &roleRunner{
		ctx: ctx, log: log, command: c, socketDir: socketDir, outputs: outputs, over: make(chan struct{}),
	}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  role.Handshake,
		Plugins:          goplugin.PluginSet{role.PluginName: &goplugin.NetRPCUnsupportedPlugin{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true,
		StartTimeout:     timeout,
		Logger:           hclog.NewNullLogger(),
		RunnerFunc:       r.prepare,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: tempDir},
	})
	began := time.Now()
	address, err := client.Start()
	close(r.over)
	if r.process == nil {
		return nil, nil, "", err
	}
	r.forget()
	if err == nil {
		if address.Network() == "unix" && filepath.Dir(address.String()) == socketDir {
			return r.process, r.output, address.String(), nil
		}
		err = fmt.Errorf("%w: it names the socket %s, which is not in its runtime directory %s", ErrHandshake, limits.Clean(address.String()), socketDir)
		_ = r.Kill(context.Background())
		<-r.process.life.Done()
	} else {
		_ = r.Kill(context.Background())
		<-r.process.life.Done()
		client.Kill() // waits for go-plugin's goroutines; after a success they end by themselves, since Wait has returned
		err = r.explain(err, time.Since(began), timeout)
	}
	r.output.Close()
	return nil, nil, "", err
}

// explain finds out what go-plugin's error was about, which it does not say in a form to decide on.
func (r *roleRunner) explain(err error, took, timeout time.Duration) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	fields := strings.Split(strings.TrimSpace(r.first), "|")
	killed := false
	if status, ok := r.process.state.Sys().(syscall.WaitStatus); ok {
		killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	switch {
	case r.first == "" && r.aborted.Load() && killed && took >= timeout:
		return fmt.Errorf("%w (%s)", ErrHandshakeTimeout, timeout)
	case r.first == "" && r.aborted.Load() && killed:
		return fmt.Errorf("%w: it closed its standard output", ErrHandshake)
	case r.first == "" || !strings.HasSuffix(r.first, "\n") && !killed:
		return &exitedError{exitOf(r.process.state, nil)} // before its line, or in the middle of it
	case len(fields) > 1: // of which a later go-plugin may have any number
		ours := [2]int{goplugin.CoreProtocolVersion, int(role.Handshake.ProtocolVersion)}
		for n, protocol := range [2]string{"go-plugin's handshake", "the plugin handshake"} {
			theirs, convErr := strconv.Atoi(fields[n])
			if convErr == nil && theirs != ours[n] {
				return &store.VersionError{Protocol: protocol, Theirs: strconv.Itoa(theirs), Ours: strconv.Itoa(ours[n]), UpgradeCore: theirs > ours[n]}
			}
		}
		if len(fields) >= 4 {
			return fmt.Errorf("%w: %s", ErrHandshake, textFrom(err.Error()))
		}
	}
	return fmt.Errorf("%w: its first line was %q", ErrHandshake, limits.Clean(limits.Cut(r.first, 200)))
}

// prepare takes over go-plugin's variables and directory. The directory is go-plugin's own and of no use: the instance's is its runtime
// directory, whose path is shorter and which the role can write in.
func (r *roleRunner) prepare(_ hclog.Logger, cmd *exec.Cmd, tempDir string) (runner.Runner, error) {
	if err := os.Remove(tempDir); err != nil {
		return nil, err
	}
	var env []string
	for _, variable := range cmd.Env {
		if !strings.HasPrefix(variable, environmentDirectory+"=") {
			env = append(env, variable)
		}
	}
	r.command.Env = append(append(env, environmentDirectory+"="+r.socketDir), r.command.Env...)
	return r, nil
}

// Start implements runner.Runner.
func (r *roleRunner) Start(context.Context) error {
	output, input, err := r.outputs.MakeStdout(r.command.Name)
	if err != nil {
		return err
	}
	// Once the process has it nobody else does, so that the kernel tells when the process has closed it.
	defer func() { _ = input.Close() }()
	r.command.Stdout = input
	process, err := startProcess(r.ctx, r.command, r.log)
	if err != nil {
		output.Close()
		return err
	}
	r.process, r.output = process, output
	// Descendants that escaped the group may have it open still; the process's own end is enough.
	context.AfterFunc(process.life, func() { output.Ended() })
	r.forget = context.AfterFunc(r.ctx, func() { _ = r.Kill(context.Background()) })
	return nil
}

// Stdout implements runner.Runner: the handshake line and no more.
func (r *roleRunner) Stdout() io.ReadCloser { return io.NopCloser(&lineReader{runner: r}) }

type lineReader struct {
	runner *roleRunner
	rest   *strings.Reader
}

func (l *lineReader) Read(into []byte) (int, error) {
	if l.rest == nil {
		l.runner.first = l.runner.output.FirstLine()
		l.rest = strings.NewReader(l.runner.first)
	}
	return l.rest.Read(into)
}

// Stderr implements runner.Runner: always empty. The process writes into a file, so that it survives the core.
func (r *roleRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Wait implements runner.Runner: until go-plugin's part is over, however long the process lives.
func (r *roleRunner) Wait(context.Context) error {
	<-r.over
	return nil
}

// Kill implements runner.Runner.
func (r *roleRunner) Kill(context.Context) error {
	if r.process.life.Err() == nil {
		r.aborted.Store(true)
	}
	r.process.signalGroup(syscall.SIGKILL)
	return nil
}

// ID implements runner.Runner.
func (r *roleRunner) ID() string { return strconv.Itoa(r.process.PID) }

// Name implements runner.Runner.
func (r *roleRunner) Name() string { return r.command.Name }

// Diagnose implements runner.Runner.
func (r *roleRunner) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (r *roleRunner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (r *roleRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
