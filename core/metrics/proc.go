package metrics

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
)

// ticks is how many of the ticks in which /proc counts time make a second: the same on every platform that Go knows.
const ticks = 100

// usage is what the processes of a role use.
type usage struct {
	processes int
	resident  uint64  // bytes
	cpu       float64 // seconds
	fds       int
	fdsKnown  bool
}

// usageOf reads what the processes of the instances use, by role: every process of the group that the instance's own leads. The processes of the
// machine are looked through once for all roles. A role whose process is gone, or whose PID is another process's by now, is not in it.
func usageOf(instances roles.Instances) map[string]usage {
	leaders := make(map[int]string) // by PID, which is the number of the group
	used := make(map[string]usage)
	started := make(map[string]plugin.Process)
	for _, instance := range instances {
		if process := instance.Process; process != nil && alive(*process) {
			leaders[process.PID] = instance.Status.GetRole()
			started[instance.Status.GetRole()] = *process
		}
	}
	if len(leaders) == 0 {
		return used
	}
	for _, pid := range pids() {
		s, err := readStat(pid)
		role, ok := leaders[s.group]
		if err != nil || !ok || s.dead() {
			continue
		}
		u := used[role]
		u.processes++
		u.resident += s.resident * uint64(os.Getpagesize())
		u.cpu += float64(s.cpu) / ticks
		if open, ok := openFDs(pid); ok {
			u.fds += open
			u.fdsKnown = true
		}
		used[role] = u
	}
	// While its leader lives, the number of a group is nobody else's: what was read is the instance's if the leader is still the same one.
	for role, process := range started {
		if !alive(process) {
			delete(used, role)
		}
	}
	return used
}

// alive reports whether a process is still the one that it was.
func alive(process plugin.Process) bool {
	s, err := readStat(process.PID)
	return err == nil && s.start == process.Start && !s.dead()
}

// pids lists the processes of the machine.
func pids() []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = proc.Close() }()
	names, _ := proc.Readdirnames(-1) // those that were read are better than none
	var found []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// openFDs counts the file descriptors of a process. They are not known of a process that the core may not look into.
func openFDs(pid int) (int, bool) {
	directory, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return 0, false
	}
	defer func() { _ = directory.Close() }()
	// Newer kernels say how many there are.
	if info, err := directory.Stat(); err == nil && info.Size() > 0 {
		return int(info.Size()), true
	}
	names, err := directory.Readdirnames(-1)
	return len(names), err == nil
}

// stat is what /proc/PID/stat says of a process, as far as it matters here.
type stat struct {
	state    byte
	group    int
	start    uint64 // in ticks since the boot
	cpu      uint64 // in ticks, with that of the children that it has waited for
	resident uint64 // in pages
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(content)
}

// Where the fields are in what follows the name of the program (proc_pid_stat(5), which counts from 1 and the two before).
const (
	fieldState    = 0
	fieldGroup    = 2
	fieldCPU      = 11 // utime, stime, cutime, cstime
	fieldStart    = 19
	fieldResident = 21
	fieldCount    = 22
)

var errStat = errors.New("unexpected format of /proc/PID/stat")

// parseStat reads the fields after the name of the program, which stands in parentheses and may itself hold anything.
func parseStat(content []byte) (stat, error) {
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < fieldCount || len(fields[fieldState]) != 1 {
		return stat{}, errStat
	}
	s := stat{state: fields[fieldState][0]}
	var err error
	if s.group, err = strconv.Atoi(string(fields[fieldGroup])); err != nil {
		return stat{}, errStat
	}
	for field, into := range map[int]*uint64{fieldStart: &s.start, fieldResident: &s.resident} {
		if *into, err = strconv.ParseUint(string(fields[field]), 10, 64); err != nil {
			return stat{}, errStat
		}
	}
	for _, field := range fields[fieldCPU : fieldCPU+4] {
		time, err := strconv.ParseUint(string(field), 10, 63)
		if err != nil {
			return stat{}, errStat
		}
		s.cpu += time
	}
	return s, nil
}
