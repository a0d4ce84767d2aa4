package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/reeveproject/reeve/proto/confine"
	"github.com/reeveproject/reeve/sdk/role"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// confineTime is how long `reeved confine` may take until the process runs: it copies the executable the first time.
const confineTime = time.Minute

// essential are the parts without which a sandbox would show nothing, each with its alternatives.
var essential = [][]string{{"landlock-files", "mounts"}, {"seccomp"}, {"no-new-privileges"}}

// cannotError says that this machine cannot show what a check is about. The check does not run and says nothing about the plugin.
type cannotError struct{ reason string }

func (e *cannotError) Error() string { return e.reason }

// cannot reports whether an error consists only of cannotErrors.
func cannot(err error) bool {
	switch of := err.(type) {
	case *cannotError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(of.Unwrap(), func(one error) bool { return !cannot(one) })
	case interface{ Unwrap() error }:
		return cannot(of.Unwrap())
	}
	return false
}

// confined is a process of `reeved confine` with everything that it started.
type confined struct {
	command *exec.Cmd
	input   io.Closer
	started *confine.Started
	// gone is closed when it has ended. After that, left may be read.
	gone chan struct{}
	left []string
}

// end ends what was started and waits for it.
func (c *confined) end() error {
	_ = c.input.Close()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-c.gone:
		return nil
	case <-timer.C:
	}
	_ = c.command.Process.Kill()
	<-c.gone
	return fmt.Errorf("processes in the sandbox still run %s after the suite asked them to end", killTime)
}

// awaitGone waits until the process and everything that it left are gone, and returns what had to be killed.
func (c *confined) awaitGone(ctx context.Context) ([]string, error) {
	timer := time.NewTimer(lingerTime + killTime)
	defer timer.Stop()
	select {
	case <-c.gone:
		return c.left, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, errors.New("child processes of the role could not be killed")
	}
}

// launchConfined starts the executable in a role's sandbox on a node. The process owns runtime and data, and may connect to the sockets in sockets.
func (s *subject) launchConfined(of *rolev1.RoleManifest, data, sockets string) (*process, error) {
	runtime, err := s.directory()
	if err != nil {
		return nil, err
	}
	p := &process{mark: s.mark(runtime), directory: runtime, ended: make(chan struct{}), first: make(chan string, 1), patience: s.config.patience}
	request := confine.Request{
		Executable: s.executable, Digest: s.digest, Name: of.GetName(), Own: s.work, Private: []string{runtime, data}, Passages: []string{sockets},
		Environment: append([]string{
			p.mark, cookie(), "PLUGIN_PROTOCOL_VERSIONS=" + strconv.Itoa(int(role.Handshake.ProtocolVersion)),
			"SPIFFE_ENDPOINT_SOCKET=unix://" + filepath.Join(sockets, "of-"+of.GetName()+".sock"),
		}, environment(runtime)...),
	}
	if err := request.SetRole(of); err != nil {
		return nil, err
	}
	if err := p.confine(s.spawner, s.config.Reeved, &request); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.open = append(s.open, p)
	s.mu.Unlock()
	return p, nil
}

// confine starts `reeved confine` for a process.
func (p *process) confine(by *spawner, reeved string, request *confine.Request) error {
	out, stderr, err := p.pipes()
	if err != nil {
		return err
	}
	defer func() { _, _ = out.Close(), stderr.Close() }()
	answers, answersEnd, err := os.Pipe()
	if err == nil {
		defer func() { _ = answersEnd.Close() }()
		c := &confined{command: exec.Command(reeved, "confine"), gone: make(chan struct{})}
		c.command.Env, c.command.Dir = []string{}, "/"
		c.command.Stdout, c.command.Stderr, c.command.ExtraFiles = out, stderr, []*os.File{answersEnd}
		c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		var input io.WriteCloser
		if input, err = c.command.StdinPipe(); err == nil {
			c.input = input
			if err = by.start(c.command); err == nil {
				p.confined = c
				_ = json.NewEncoder(input).Encode(request) // reeved reports if it cannot read it
			}
		}
	}
	if err != nil {
		_, _, _ = answers.Close(), p.out.Close(), p.err.Close()
		return &cannotError{fmt.Sprintf("`reeved confine` cannot be started: %s", err)}
	}
	_, _ = out.Close(), stderr.Close()
	_ = answersEnd.Close()
	p.read()
	decoder := json.NewDecoder(answers)
	_ = answers.SetReadDeadline(time.Now().Add(confineTime))
	var first confine.Answer
	err = decoder.Decode(&first)
	_ = answers.SetReadDeadline(time.Time{})
	go p.confined.follow(p, answers, decoder)
	switch {
	case first.Started != nil:
		p.leader, p.confined.started = first.Started.PID, first.Started
		return nil
	case first.Refused != nil && first.Refused.Executable:
		err = fmt.Errorf("it cannot be executed in its sandbox: %s", first.Refused.Reason)
	case first.Refused != nil:
		err = &cannotError{"this machine cannot make the sandbox: " + first.Refused.Reason}
	default:
		err = &cannotError{fmt.Sprintf("%s confine sent no answer about the start of the process (%v)", reeved, err)}
	}
	endErr := p.confined.end()
	p.drain()
	if endErr != nil {
		return errors.Join(err, endErr)
	}
	return err
}

// follow records how the process ends and what it leaves.
func (c *confined) follow(p *process, answers *os.File, decoder *json.Decoder) {
	p.code, p.how = -1, "nobody says how"
	var last confine.Answer
	for decoder.Decode(&last) == nil {
		switch {
		case last.Left != nil:
			c.left = last.Left.Processes
		case last.Ended != nil && last.Ended.Signal != 0:
			p.how = "signal: " + syscall.Signal(last.Ended.Signal).String()
			close(p.ended)
		case last.Ended != nil:
			p.code, p.how = last.Ended.Code, "exit status "+strconv.Itoa(last.Ended.Code)
			close(p.ended)
		}
		last = confine.Answer{}
	}
	_ = answers.Close()
	_ = c.command.Wait() // its answers have said everything
	if p.alive() {
		close(p.ended)
	}
	close(c.gone)
}

// startConfined starts a role in its sandbox and follows its status. data is its data directory; empty: a new one.
func (s *subject) startConfined(ctx context.Context, of *rolev1.RoleManifest, data string) (*instance, error) {
	configuration, err := s.configuration(of)
	if err != nil {
		return nil, err
	}
	if data == "" {
		if data, err = s.directory(); err != nil {
			return nil, err
		}
	}
	host := s.standIn(of)
	if err := s.openStore(ctx, host, of); err != nil {
		return nil, err
	}
	socket := host.RoleSocket(s.bench, of.GetName())
	p, err := s.launchConfined(of, data, filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	if missing := p.confined.lacks(); missing != "" {
		return nil, &cannotError{"this machine cannot enforce an essential part of the sandbox: " + missing}
	}
	line, err := p.awaitLine(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.connect(line); err != nil {
		return nil, err
	}
	request := s.request(p, of, data, configuration)
	if err := p.callStart(ctx, request); err != nil {
		return nil, fmt.Errorf("it answers Start with %w%s", err, p.lastWords())
	}
	return s.follow(p, request), nil
}

// lacks returns the essential part of the sandbox that cannot be enforced; empty if none.
func (c *confined) lacks() string {
	for _, parts := range essential {
		var reasons []string
		for _, missing := range c.started.Missing {
			if slices.Contains(parts, missing.Part) {
				reasons = append(reasons, missing.Part+": "+missing.Reason)
			}
		}
		if len(reasons) == len(parts) {
			return strings.Join(reasons, "; ")
		}
	}
	return ""
}

// enforced describes the sandbox for the report.
func (c *confined) enforced() string {
	var missing []string
	for _, of := range c.started.Missing {
		if !strings.HasPrefix(of.Part, "cgroup-") { // only a node has control groups
			missing = append(missing, of.Part)
		}
	}
	text := fmt.Sprintf("as user %d", c.started.UID)
	if len(missing) > 0 {
		text += ", without " + strings.Join(missing, ", ")
	}
	return text
}

// environment is every process's environment besides its mark.
func environment(runtime string) []string {
	return []string{plugin.EnvUnixSocketDir + "=" + runtime, "GOTRACEBACK=single"}
}
