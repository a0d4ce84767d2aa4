package sandbox

import (
	"path/filepath"
	"slices"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Describe says what a policy amounts to on this host, for people. It does not know control groups.
func (h *Host) Describe(p Policy) *nodev1.Sandbox {
	limits := p.Limits()
	described := &nodev1.Sandbox{
		Tier: p.Remit.Tier(), Uid: p.UID, Gid: p.GID, OwnUser: p.OwnUser && h.can(MissingOwnUID),
		OpenFiles: p.openFiles(), Missing: h.Missing(p),
	}
	for part, bound := range map[string]struct {
		to   *int64
		from int64
	}{
		MissingMemory:    {&described.MemoryBytes, limits.MemoryBytes},
		MissingProcesses: {&described.Processes, limits.Processes},
		MissingCPU:       {&described.CpuWeight, limits.CPUWeight},
	} {
		if h.can(part) {
			*bound.to = bound.from
		}
	}
	if p.privileged() {
		described.OwnUser = false
		described.Reads, described.Writes, described.Executes = []string{"/"}, []string{"/"}, []string{"/"}
		described.Listens, described.Connects = []string{remit.AnyPort}, []string{remit.AnyPort}
		return described
	}
	granted, _ := setOf(p.Remit.Capabilities)
	for _, name := range p.Remit.Capabilities {
		if (granted & h.held).has(capabilityNumbers[name]) {
			described.Capabilities = append(described.Capabilities, name)
		}
	}
	described.NoNewPrivileges = h.can(MissingNoNewPrivileges)
	described.OwnMounts, described.OwnIpc = h.can(MissingMounts), h.can(MissingIPC)
	if h.can(MissingSeccomp) {
		described.DeniedSystemCalls = deniedTo(p)
		described.UnixSocketsOnly = p.unixOnly()
	}
	if !described.GetUnixSocketsOnly() {
		described.Listens, described.Connects = h.ports(p.Remit.Listen), h.ports(p.Remit.Connect)
	}
	described.Reads, described.Writes, described.Executes = h.described(p)
	return described
}

// ports returns the ports that a role can use. Without Landlock's rules for TCP that is any port.
func (h *Host) ports(p remit.Ports) []string {
	if !h.can(MissingLandlockTCP) {
		return []string{remit.AnyPort}
	}
	return p.Texts()
}

// described lists what a role can reach, whether or not it exists: a role that does not run yet has no directories.
func (h *Host) described(p Policy) (reading, writing, executing []string) {
	reading = slices.Concat(existing(everyoneReads), []string{"/proc"}, p.Private, p.Remit.Read, p.Remit.Write, p.Remit.Execute)
	for _, name := range harmless {
		reading = append(reading, filepath.Join("/dev", name))
		writing = append(writing, filepath.Join("/dev", name))
	}
	writing = slices.Concat(writing, p.Private, p.Remit.Write)
	inScratch := func(path string) bool { return below(path, scratchAt) }
	if h.can(MissingMounts) && !slices.ContainsFunc(slices.Concat(reading, p.Passages), inScratch) {
		reading, writing = append(reading, scratchAt), append(writing, scratchAt)
	}
	executing = slices.Clone(p.Remit.Execute)
	for _, list := range []*[]string{&reading, &writing, &executing} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return reading, writing, executing
}

func existing(paths []string) []string {
	var found []string
	for _, path := range paths {
		if _, err := filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}
