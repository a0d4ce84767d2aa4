package sandbox

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cgroup"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Policy is what a process may.
type Policy struct {
	// Remit is what its role was granted; the zero value is the strictest.
	Remit remit.Remit
	// UID and GID are the process's. They are only changed to where the core is root; OwnUser says that no other role has them.
	UID, GID uint32
	OwnUser  bool
	// Private are directories that the role may read, write and make sockets in, besides what it is granted; Passages are directories that it may
	// search and whose sockets it may connect to, and read nothing of. They exist.
	Private, Passages []string
	// GivesUp is as in the manifest: "processes", "network".
	GivesUp []string
	// EndsWithCore has the kernel kill the process when the core ends, however it ends.
	EndsWithCore bool
	// Limits hold where the remit has none.
	Defaults Defaults
}

// Defaults are the bounds for a role that was not granted others. 0: none.
type Defaults struct{ MemoryBytes, Processes, OpenFiles, CPUWeight int64 }

// Command is what to start.
type Command struct {
	// Executable is executed by this descriptor, whatever its path is by now.
	Executable *os.File
	// Name is the first argument, by which people know the process.
	Name           string
	Env            []string
	Stdout, Stderr *os.File
	// Group is the control group of the process; nil: that of the core.
	Group *cgroup.Group
}

// Child is a process that was started: a child of the core and the leader of a process group of its own.
type Child struct {
	// Process is to be waited for by whoever started it.
	Process *os.Process
	// PIDFD is a descriptor of the process, nonblocking; nil if the kernel gives none.
	PIDFD *os.File
}

// Release is called once when the process has ended.
func (c *Child) Release() {}

// Host is what this machine, and this user, can enforce.
type Host struct{ log hclog.Logger }

// Probe finds out what can be enforced here, by trying it on threads that die. It takes some milliseconds.
func Probe(log hclog.Logger, groups *cgroup.Tree) (*Host, error) { return &Host{log: log}, nil }

// Missing is what cannot be enforced of a policy, sorted by name.
func (h *Host) Missing(p Policy) []*clusterv1.Missing { return nil }

// Describe is what a policy comes to on this host, for people. Control groups are not known to it.
func (h *Host) Describe(p Policy) *nodev1.Sandbox { return &nodev1.Sandbox{} }

// Start starts a process in its sandbox. What Missing lists is left out; everything else is enforced, or the process does not run.
func (h *Host) Start(p Policy, c Command) (*Child, error) { return nil, os.ErrInvalid }
