package metrics

import (
	"os"

	"github.com/prometheus/procfs"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
)

// ticks is how many of the ticks in which /proc counts time make a second: the same on every platform that Go knows.
const ticks = 100

// usage is what the processes of a role use.
type usage struct {
	processes int
	resident  uint64  // bytes
	cpu       float64 // seconds, with those of the children that the processes have waited for
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
		if process := instance.Process; process != nil && process.Running() {
			leaders[process.PID] = instance.Status.GetRole()
			started[instance.Status.GetRole()] = *process
		}
	}
	if len(leaders) == 0 {
		return used
	}
	processes, _ := procfs.AllProcs() // what cannot be read is not shown
	for _, process := range processes {
		s, err := process.Stat()
		role, ok := leaders[s.PGRP]
		if err != nil || !ok || dead(s) {
			continue
		}
		u := used[role]
		u.processes++
		u.resident += uint64(s.RSS) * uint64(os.Getpagesize())
		u.cpu += float64(int(s.UTime)+int(s.STime)+s.CUTime+s.CSTime) / ticks
		// They are not known of a process that the core may not look into.
		if open, err := process.FileDescriptorsLen(); err == nil {
			u.fds += open
			u.fdsKnown = true
		}
		used[role] = u
	}
	// While its leader lives, the number of a group is nobody else's: what was read is the instance's if the leader is still the same one.
	for role, process := range started {
		if !process.Running() {
			delete(used, role)
		}
	}
	return used
}

func dead(s procfs.ProcStat) bool { return s.State == "Z" || s.State == "X" }
