package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// descendants returns other processes of the plugin's group or with its mark in their environment. A child has the mark unless it was given another
// environment, and is then found by the group unless it has left that too.
func (p *process) descendants() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	// A process without a sandbox is in the suite's session; a confined one leads its own. `reeved confine` ends what a confined process leaves, and
	// the number of its group may then belong to another.
	session, byGroup := p.pid(), p.alive()
	if p.confined == nil {
		session, byGroup = sessionOf(os.Getpid()), true
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == p.pid() || pid == os.Getpid() {
			continue
		}
		if bytes.Contains(append([]byte{0}, environmentOf(pid)...), append([]byte{0}, p.mark+"\x00"...)) || byGroup && ofGroup(pid, p.pid(), session) {
			found = append(found, pid)
		}
	}
	return found
}

// environmentOf returns the environment of a process; empty for a zombie or somebody else's process. In the middle of execve a process shows no
// environment yet, possibly long enough on a busy machine to overlook a child that left its parent's group. Then it is read again.
func environmentOf(pid int) []byte {
	const envEnd = 48 // the end address of the environment; 0: the kernel has not set it yet
	at := filepath.Join("/proc", strconv.Itoa(pid))
	for deadline := time.Now().Add(lingerTime); ; time.Sleep(time.Millisecond) {
		environment, err := os.ReadFile(filepath.Join(at, "environ"))
		if err != nil || len(environment) > 0 || time.Now().After(deadline) {
			return environment
		}
		fields := statFields(pid)
		if len(fields) <= envEnd || fields[envEnd] != "0" {
			environment, _ = os.ReadFile(filepath.Join(at, "environ")) // it may have been set since
			return environment
		}
		// A process without an executable is a zombie or a kernel thread.
		if _, err := os.Readlink(filepath.Join(at, "exe")); err != nil {
			return nil
		}
	}
}

// ofGroup reports whether a process lives and is in a group in a session. A group is in one session; in another one the number belongs to a
// stranger's group.
func ofGroup(pid, group, session int) bool {
	if of, err := syscall.Getpgid(pid); err != nil || of != group || sessionOf(pid) != session {
		return false
	}
	// It may be a zombie.
	fields := statFields(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// sessionOf returns the session of a process; -1 if it has ended.
func sessionOf(pid int) int {
	fields := statFields(pid)
	if len(fields) < 4 {
		return -1
	}
	session, err := strconv.Atoi(fields[3])
	if err != nil {
		return -1
	}
	return session
}
