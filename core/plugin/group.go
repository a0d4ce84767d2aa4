package plugin

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// makeGroup makes the control group of the instance, before its process is.
func (s *session) makeGroup() error {
	if s.launcher.groups == nil {
		return nil
	}
	var err error
	if s.group, err = s.launcher.groups.Make(s.remit.Name, s.launcher.policy(s.remit).Limits()); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// takeGroup takes the control group of an adopted instance. One that the process is not in, since the core that launched it made none, is none.
func (s *session) takeGroup() error {
	if err := s.makeGroup(); err != nil || s.group == nil {
		return err
	}
	if len(s.group.Paths()) == 0 {
		return nil // there are none here
	}
	if processes, err := s.group.Processes(); err != nil || !slices.Contains(processes, s.process.PID) {
		empty := s.group
		s.group = nil
		return errors.Join(err, empty.Remove())
	}
	var err error
	s.starvedBefore, err = s.group.OutOfMemory()
	return err
}

// killGroup kills what is in the control group: also what has left process group and session, and has another environment.
func (s *session) killGroup() error {
	if s.group == nil {
		return nil
	}
	s.outOfMemory() // the count goes with the group
	if err := s.group.Kill(); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// fenced reports whether no process of the instance can have left its control group: that takes the rights of root, or of the core's user.
func (s *session) fenced() bool {
	return s.group != nil && len(s.group.Paths()) > 0 && !s.remit.SharedUID && len(s.remit.Powers.Capabilities) == 0
}

// removeGroup waits until the group is empty, and removes it.
func (s *session) removeGroup() error {
	if s.group == nil {
		return nil
	}
	if err := s.group.Remove(); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// outOfMemory reports whether the kernel has ended a process of the instance for want of memory.
func (s *session) outOfMemory() bool {
	if s.group != nil && !s.starved {
		count, err := s.group.OutOfMemory()
		s.starved = err == nil && count > s.starvedBefore
	}
	return s.starved
}

// exit is how the process ended, which it has.
func (s *session) exit(lines []string) Exit {
	exit := s.process.exit(lines)
	s.tellMemory(&exit)
	return exit
}

// tellMemory completes an exit with its cause: the kernel ends what has no memory by the signal by which a person would.
func (s *session) tellMemory(exit *Exit) {
	if (exit.Signal == syscall.SIGKILL || exit.Unknown) && s.outOfMemory() {
		exit.OutOfMemory, exit.Memory = true, s.launcher.policy(s.remit).Limits().MemoryBytes
	}
}

// explain completes the error of a process that made no handshake: one that ran out of memory may look like one that closed its standard output.
func (s *session) explain(err error) error {
	var exited *exitedError
	switch {
	case !s.outOfMemory():
		return err
	case errors.As(err, &exited):
		s.tellMemory(&exited.exit)
		return err
	case errors.Is(err, ErrHandshake):
		killed := Exit{Code: -1, Signal: syscall.SIGKILL}
		s.tellMemory(&killed)
		return &exitedError{killed}
	}
	return err
}
