// Package procfs looks at the processes of the machine, and holds single ones so that no other is taken for them.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is a process as it was at one moment.
type Process struct {
	PID int
	// Start is when it started, in the kernel's clock ticks: a PID with its start is never used again.
	Start uint64
	// State is the kernel's letter; 'Z' is a process that has ended and was not waited for.
	State                 byte
	Parent, Group, Leader int
	// UID is the effective user ID.
	UID uint32
	// Executable is empty where the caller may not know it.
	Executable string
	// Environment and Arguments are nil where the caller may not know them.
	Environment, Arguments []string
}

// Ended says that the process does not run any more.
func (p Process) Ended() bool { return p.State == 'Z' || p.State == 'X' }

// Variable returns a variable of the process's environment.
func (p Process) Variable(name string) string {
	for _, entry := range p.Environment {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// String is how the process is shown to people.
func (p Process) String() string {
	return fmt.Sprintf("process %d (uid %d, state %c, group %d, %s, %s)",
		p.PID, p.UID, p.State, p.Group, p.Executable, strings.Join(p.Arguments, " "))
}

// Read returns a process. It fails if there is none with that PID.
func Read(pid int) (Process, error) {
	directory := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(directory, "stat"))
	if err != nil {
		return Process{}, err
	}
	// The name, in parentheses, may contain anything; what follows it is a list of fields that begins with the third.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	p := Process{PID: pid, State: fields[0][0]}
	for i, into := range map[int]*int{1: &p.Parent, 2: &p.Group, 3: &p.Leader} {
		if *into, err = strconv.Atoi(fields[i]); err != nil {
			return Process{}, err
		}
	}
	if p.Start, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return Process{}, err
	}
	if p.UID, err = effectiveUser(directory); err != nil {
		return Process{}, err
	}
	// What follows is not for everybody to know, and not there for a process that has ended.
	p.Executable, _ = os.Readlink(filepath.Join(directory, "exe"))
	p.Environment = list(filepath.Join(directory, "environ"))
	p.Arguments = list(filepath.Join(directory, "cmdline"))
	return p, nil
}

func effectiveUser(directory string) (uint32, error) {
	status, err := os.ReadFile(filepath.Join(directory, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if values, ok := strings.CutPrefix(line, "Uid:"); ok {
			fields := strings.Fields(values)
			if len(fields) < 2 {
				break
			}
			uid, err := strconv.ParseUint(fields[1], 10, 32)
			return uint32(uid), err
		}
	}
	return 0, fmt.Errorf("%s/status names no user", directory)
}

func list(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
}

// All returns the processes of the machine. Those that end meanwhile are left out.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}
