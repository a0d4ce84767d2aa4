package sandbox

import (
	"fmt"
	"slices"
	"strings"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// The parts of a sandbox, as Missing names them.
const (
	MissingOwnUID          = "own-uid"
	MissingMounts          = "mounts"
	MissingIPC             = "ipc"
	MissingCapabilities    = "capabilities"
	MissingLandlockFiles   = "landlock-files"
	MissingLandlockTCP     = "landlock-tcp"
	MissingSeccomp         = "seccomp"
	MissingNoNewPrivileges = "no-new-privileges"
	MissingNotDumpable     = "not-dumpable"
	MissingLimits          = "limits"
	MissingMemory          = "cgroup-memory"
	MissingProcesses       = "cgroup-processes"
	MissingCPU             = "cgroup-cpu"
)

// can reports whether this host can enforce a part.
func (h *Host) can(part string) bool { _, lacks := h.lacks[part]; return !lacks }

// Missing returns what this host cannot enforce of a policy, sorted by name.
func (h *Host) Missing(p Policy) []*clusterv1.Missing {
	if p.privileged() {
		return nil
	}
	missing := make(map[string]string)
	for part, reason := range h.lacks {
		missing[part] = reason
	}
	if !p.OwnUser && h.can(MissingOwnUID) {
		missing[MissingOwnUID] = "the role shares its user with others"
	}
	// Without a network there is nothing for Landlock to refuse, and with any port neither.
	if p.unixOnly() && h.can(MissingSeccomp) || p.Remit.Listen.Any && p.Remit.Connect.Any {
		delete(missing, MissingLandlockTCP)
	}
	granted, err := setOf(p.Remit.Capabilities)
	if lost := granted &^ h.held; err == nil && lost != 0 && h.can(MissingCapabilities) {
		var names []string
		for _, name := range p.Remit.Capabilities {
			if lost.has(capabilityNumbers[name]) {
				names = append(names, name)
			}
		}
		missing[MissingCapabilities] = fmt.Sprintf("the core does not have the granted capabilities %s: give them to the core", strings.Join(names, ", "))
	}
	limits := p.Limits()
	for part, bound := range map[string]int64{MissingMemory: limits.MemoryBytes, MissingProcesses: limits.Processes, MissingCPU: limits.CPUWeight} {
		if bound == 0 {
			delete(missing, part)
		}
	}
	var list []*clusterv1.Missing
	for part, reason := range missing {
		list = append(list, &clusterv1.Missing{Name: part, Reason: reason})
	}
	slices.SortFunc(list, func(a, b *clusterv1.Missing) int { return strings.Compare(a.Name, b.Name) })
	return list
}
