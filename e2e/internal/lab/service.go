package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/unit"
)

// Where units are that `make install` has installed, where those are named that start with the machine, and where what they write goes.
const (
	unitDirectory    = "/usr/local/lib/systemd/system"
	enabledDirectory = "/etc/systemd/system/multi-user.target.wants"
	journalDirectory = "/var/log"
)

// service is a unit that was started at least once.
type service struct {
	file string

	mu sync.Mutex
	// process is nil if it does not run. stop is closed when it is not to be started again, and ended once it has ended for good.
	process     *os.Process
	stop, ended chan struct{}
}

// systemctl does what systemctl does, as far as a page of the documentation asks for it.
func (m *first) systemctl(arguments []string) error {
	verb, now, signal := arguments[0], false, "TERM"
	var names []string
	for _, argument := range arguments[1:] {
		switch value, isSignal := strings.CutPrefix(argument, "--signal="); {
		case argument == "--now":
			now = true
		case isSignal:
			signal = strings.TrimPrefix(value, "SIG")
		case strings.HasPrefix(argument, "-"):
			return fmt.Errorf("systemctl of a lab does not know %s", argument)
		default:
			names = append(names, strings.TrimSuffix(argument, ".service"))
		}
	}
	if len(names) != 1 {
		return errors.New("systemctl of a lab takes one unit")
	}
	s, err := m.service(names[0])
	if err != nil {
		return err
	}
	link := filepath.Join(enabledDirectory, filepath.Base(s.file))
	switch verb {
	case "enable":
		if err := os.MkdirAll(enabledDirectory, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(s.file, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if now {
			return s.start(m.children)
		}
	case "disable":
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if now {
			return s.end()
		}
	case "start":
		return s.start(m.children)
	case "stop":
		return s.end()
	case "restart":
		return errors.Join(s.end(), s.start(m.children))
	case "kill":
		return s.signal(signal)
	default:
		return fmt.Errorf("systemctl of a lab does not know %q", verb)
	}
	return nil
}

// service returns the service of a unit.
func (m *first) service(name string) (*service, error) {
	file := filepath.Join(unitDirectory, name+".service")
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("unit %s.service not found: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units[name] == nil {
		m.units[name] = &service{file: file}
	}
	return m.units[name], nil
}

// start starts the unit, if it does not run.
func (s *service) start(children *children) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	conditions, err := unit.Settings(s.file, "ConditionPathExists")
	if err != nil {
		return err
	}
	for _, path := range conditions {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: the condition ConditionPathExists=%s is not met", filepath.Base(s.file), path)
		}
	}
	if err := s.directories(); err != nil {
		return err
	}
	restart, err := unit.Settings(s.file, "RestartSec")
	if err != nil || len(restart) != 1 {
		return fmt.Errorf("RestartSec is set %d times: %w", len(restart), err)
	}
	pause, err := strconv.Atoi(restart[0])
	if err != nil {
		return err
	}
	command, err := s.launch(children)
	if err != nil {
		return err
	}
	s.process, s.stop, s.ended = command.Process, make(chan struct{}), make(chan struct{})
	go s.keep(children, command, time.Duration(pause)*time.Second)
	return nil
}

// directories makes those that the unit asks for.
func (s *service) directories() error {
	for setting, below := range map[string]string{"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "ConfigurationDirectory": "/etc", "LogsDirectory": "/var/log"} {
		names, err := unit.Settings(s.file, setting)
		if err != nil {
			return err
		}
		modes, err := unit.Settings(s.file, setting+"Mode")
		if err != nil || len(modes) != len(names) {
			return fmt.Errorf("%s has %d modes: %w", setting, len(modes), err)
		}
		for i, name := range names {
			mode, err := strconv.ParseUint(modes[i], 8, 32)
			if err != nil {
				return err
			}
			directory := filepath.Join(below, name)
			if err := errors.Join(os.MkdirAll(directory, 0o755), os.Chmod(directory, os.FileMode(mode))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *service) launch(children *children) (*exec.Cmd, error) {
	starts, err := unit.Settings(s.file, "ExecStart")
	if err != nil || len(starts) != 1 {
		return nil, fmt.Errorf("ExecStart is set %d times: %w", len(starts), err)
	}
	journal, err := os.OpenFile(filepath.Join(journalDirectory, filepath.Base(s.file)+".journal"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = journal.Close() }()
	command := exec.Command(toolPath, strings.Fields(starts[0])...)
	command.Dir = "/"
	command.Env = []string{unitVariable + "=" + s.file}
	command.Stdout, command.Stderr = journal, journal
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command, children.start(command)
}

// keep starts the unit again whenever it ends, until it is stopped: Restart=always.
func (s *service) keep(children *children, command *exec.Cmd, pause time.Duration) {
	defer close(s.ended)
	for {
		children.wait(command)
		select {
		case <-s.stop:
		case <-time.After(pause):
		}
		s.mu.Lock()
		select {
		case <-s.stop:
			s.process = nil
		default:
			var err error
			if command, err = s.launch(children); err != nil {
				fmt.Fprintln(os.Stderr, err)
				s.process = nil
			} else {
				s.process = command.Process
			}
		}
		running := s.process != nil
		s.mu.Unlock()
		if !running {
			return
		}
	}
}

// end stops the unit and waits for its process. What that leaves running is left: KillMode=process.
func (s *service) end() error {
	s.mu.Lock()
	process, ended := s.process, s.ended
	if process != nil {
		select {
		case <-s.stop:
		default:
			close(s.stop)
		}
		// It may have ended by itself.
		_ = process.Signal(unix.SIGTERM)
	}
	s.mu.Unlock()
	if process != nil {
		<-ended
	}
	return nil
}

func (s *service) signal(name string) error {
	number := unix.SignalNum("SIG" + name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == 0 || s.process == nil {
		return fmt.Errorf("no SIG%s for %s, which may not run", name, filepath.Base(s.file))
	}
	return s.process.Signal(number)
}

// boot starts what starts with the machine.
func (m *first) boot() error {
	entries, err := os.ReadDir(enabledDirectory)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		err = errors.Join(err, m.systemctl([]string{"start", entry.Name()}))
	}
	return err
}
