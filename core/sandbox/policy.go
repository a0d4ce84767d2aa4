package sandbox

import (
	"os"
	"slices"

	"github.com/reeveproject/reeve/core/cgroup"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Policy is what a process may do.
type Policy struct {
	// Remit is what its role was granted. The zero value is the strictest.
	Remit remit.Remit
	// UID and GID are the process's. A core without root cannot change them. OwnUser says that no other role has them.
	UID, GID uint32
	OwnUser  bool
	// Private are directories in which the role may read, write and make sockets. Passages are directories that it may search and whose sockets it
	// may connect to, but not read. All of them exist.
	Private, Passages []string
	// GivesUp is as in the manifest: "processes", "network".
	GivesUp []string
	// EndsWithCore makes the kernel kill the process when the core ends, however it ends.
	EndsWithCore bool
	// Defaults apply where the remit has no limit.
	Defaults Defaults
}

// Defaults are limits for a role without granted ones; 0 means none.
type Defaults struct{ MemoryBytes, Processes, OpenFiles, CPUWeight int64 }

// DefaultsOf returns the limits by the parameters, with Reeve's own for what is not set; nil: nothing is.
func DefaultsOf(set *nodev1.SandboxDefaults) Defaults {
	if set == nil {
		set = &nodev1.SandboxDefaults{}
	}
	or := func(value *int64, standard int64) int64 {
		if value == nil {
			return standard
		}
		return *value
	}
	return Defaults{
		MemoryBytes: or(set.MemoryBytes, 1<<30), Processes: or(set.Processes, 512), OpenFiles: or(set.OpenFiles, 4096), CPUWeight: or(set.CpuWeight, 100),
	}
}

// Limits returns the limits of the process's control group.
func (p Policy) Limits() cgroup.Limits {
	return cgroup.Limits{
		MemoryBytes: orDefault(p.Remit.Memory, p.Defaults.MemoryBytes),
		Processes:   orDefault(p.Remit.Processes, p.Defaults.Processes),
		CPUWeight:   orDefault(p.Remit.CPUWeight, p.Defaults.CPUWeight),
	}
}

func (p Policy) openFiles() int64 { return orDefault(p.Remit.OpenFiles, p.Defaults.OpenFiles) }

func orDefault(granted, byDefault int64) int64 {
	if granted > 0 {
		return granted
	}
	return max(byDefault, 0)
}

func (p Policy) privileged() bool { return p.Remit.Tier() == clusterv1.Tier_TIER_PRIVILEGED }

// unixOnly reports whether all but Unix sockets are refused.
func (p Policy) unixOnly() bool {
	return slices.Contains(p.GivesUp, remit.GiveUpNetwork) || p.Remit.Listen.None() && p.Remit.Connect.None()
}

func (p Policy) noProcesses() bool { return slices.Contains(p.GivesUp, remit.GiveUpProcesses) }

func (p Policy) has(capability string) bool { return slices.Contains(p.Remit.Capabilities, capability) }

// Command is the process to start.
type Command struct {
	// Executable is executed by its descriptor, whatever its path is by now.
	Executable *os.File
	// Name is the first argument, which people see.
	Name           string
	Env            []string
	Stdout, Stderr *os.File
	// Group is the control group of the process; nil: that of the core.
	Group *cgroup.Group
}
