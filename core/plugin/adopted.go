package plugin

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/proc"
)

// errGone says that a recorded process has ended, whatever has its number now.
var errGone = errors.New("its process has ended")

// adoptProcess takes hold of a process that another core launched. It is held by pidfd before it is looked at, so that what was seen is of what is held.
func adoptProcess(r record) (*process, error) {
	fd, err := proc.Open(r.PID)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	p, end := newProcess(r.PID, r.UID)
	p.Start, p.fd = r.Start, fd
	if err := p.check(); err != nil {
		fd.Close()
		p.letGo()
		end()
		return nil, err
	}
	go p.wait(end)
	return p, nil
}

// check compares what the kernel says of the process with what was recorded of it.
func (p *process) check() error {
	s, err := proc.ReadStat(p.PID)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		return errGone
	case err != nil:
		return err
	case s.Start != p.Start:
		return fmt.Errorf("%w, and its number %d is another one's", errGone, p.PID)
	case s.Dead():
		return errGone
	case s.PGRP != p.PID:
		return fmt.Errorf("its process %d is not the leader of its group any more", p.PID)
	case !proc.HasUID(p.PID, func(uid uint32) bool { return uid == p.uid }):
		return fmt.Errorf("its process %d does not run as user %d", p.PID, p.uid)
	}
	return nil
}

// member reports whether a process is of the group. The number of a group is not used again while the group has members, nor that of a process while it is a
// group's: the group is this one unless its number now belongs to a later process.
func (p *process) member(pid int) bool {
	s, err := proc.ReadStat(pid)
	if err != nil || s.PGRP != p.PID || s.Start < p.Start || !proc.HasUID(pid, func(uid uint32) bool { return uid == p.uid }) {
		return false
	}
	leader, err := proc.ReadStat(p.PID)
	if err == nil {
		return leader.Start == p.Start
	}
	// Without its leader the number may since have been another group's; a user that others have too does not tell whose it is, the mark does.
	return p.uid != uint32(os.Geteuid()) || instanceOf(pid) != ""
}

// signalMembers signals the process and its group, each by a handle of its own: the process may end at any moment, and nobody but its parent keeps its
// number from being given to another.
func (p *process) signalMembers(signal syscall.Signal) {
	_ = p.fd.Signal(signal)
	members, _ := proc.Find(p.member) // whom this misses the sweep finds
	for _, h := range members {
		if h.PID != p.PID {
			_ = h.Signal(signal)
		}
	}
	proc.CloseAll(members)
}

// adopted are the instances that go on under this core.
type adopted []*session

// names are the names of the instances, under which what is theirs is kept.
func (a adopted) names() map[string]bool {
	names := make(map[string]bool)
	for _, s := range a {
		names[s.remit.Name] = true
	}
	return names
}

// owns reports whether a process belongs to one of the instances: it has its user, and is in its group or does not carry the mark of another instance. Where
// users are shared only the group and the mark tell.
func (a adopted) owns(pid int) bool {
	if len(a) == 0 {
		return false
	}
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return false
	}
	mark := instanceOf(pid)
	return slices.ContainsFunc(a, func(s *session) bool {
		if !proc.HasUID(pid, func(uid uint32) bool { return uid == s.remit.UID }) {
			return false
		}
		if stat.PGRP == s.process.PID || mark == s.remit.InstanceID {
			return true
		}
		return !s.remit.SharedUID && mark == ""
	})
}

// leave lets go of all of them.
func (a adopted) leave() error {
	var problems []error
	for _, s := range a {
		problems = append(problems, s.leave())
	}
	return errors.Join(problems...)
}
