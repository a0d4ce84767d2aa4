package plugin

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Remit is who an instance is and what it may: everything that the rest of the core needs to know of it. It does not change while the
// instance lives, but that its process becomes known.
type Remit struct {
	// InstanceID is "<node ID>/<role>/<counter>".
	InstanceID string
	// Name is "<role>.<counter>", under which the directories of the instance are kept.
	Name string
	Role string
	// UID and GID are the instance's own where the core is root, and the core's otherwise and where the role is privileged.
	UID, GID uint32
	// SharedUID says that UID is not the instance's own.
	SharedUID bool
	// Manifest is what the plugin says of the role.
	Manifest *rolev1.RoleManifest
	// Grants is what the owner granted to the role; never nil.
	Grants *clusterv1.RoleGrants
	// Powers is what the grants allow, and Tier how far that opens the sandbox.
	Powers remit.Remit
	Tier   clusterv1.Tier
	// Debugged says that the process was started by hand: it is in no sandbox, whatever the grants say.
	Debugged bool

	// digest is the executable that Prepare found.
	digest string
	// process is the only part that comes later.
	process atomic.Pointer[Process]
}

// SetProcess says which process the instance is, once that has been started and before its role has.
func (r *Remit) SetProcess(p Process) { r.process.Store(&p) }

// Process is the instance's process; false: none was started yet.
func (r *Remit) Process() (Process, bool) {
	if p := r.process.Load(); p != nil {
		return *p, true
	}
	return Process{}, false
}

// StopGrace is how long the role may take to stop: what its manifest says, and otherwise what is usual.
func (r *Remit) StopGrace(usual time.Duration) time.Duration {
	if declared := r.Manifest.GetStopGrace(); declared != nil {
		return limits.StopGraceOf(declared)
	}
	return usual
}

// Process is the process of an instance, which is also the leader of the instance's process group.
type Process struct {
	PID int
	// Start is when the process started: field 22 of /proc/PID/stat. PIDs are used again, a PID with its start is not.
	Start uint64
}

// Running reports whether the process itself runs, and not another one with its number.
func (p Process) Running() bool {
	s, err := proc.ReadStat(p.PID)
	return err == nil && s.Start == p.Start && !s.Dead()
}

// instanceOf returns the ID of the instance to which a process belongs by its environment; "" if that says none, or is not the core's to read.
func instanceOf(pid int) string { return proc.Variable(pid, InstanceVariable) }

// CheckMember returns nil if a process belongs to the process group that this one leads, and otherwise why not. What it says is of the process that has the
// PID now: that it is the one that was meant has to be looked at afterwards.
func (p Process) CheckMember(pid int) error {
	group, err := unix.Getpgid(pid)
	if err != nil {
		return fmt.Errorf("process group of process %d: %w", pid, err)
	}
	if group != p.PID {
		return fmt.Errorf("process %d is in process group %d, not in the instance's %d", pid, group, p.PID)
	}
	leader, err := proc.ReadStat(group)
	if err != nil {
		return fmt.Errorf("leader of process group %d: %w", group, err)
	}
	if leader.Start != p.Start {
		return fmt.Errorf("process group %d is not the instance's: its leader started at %d, not at %d", group, leader.Start, p.Start)
	}
	return nil
}
