package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
)

// The versions of Landlock's ABI that know files, and TCP ports.
const (
	landlockFiles = 1
	landlockTCP   = 4
)

// lack is a part of the sandbox of roles that cannot be enforced, and what would help.
type lack struct{ part, help string }

// isolation says which parts of the sandbox of roles a core that is started as this process was cannot enforce. The names are those of a node's
// status (docs/reference/sandbox.md); the core tries each of them when it starts, and has the last word.
func (f Facts) isolation() output.Check {
	check := good("isolation", "every part of the sandbox of roles")
	lacks := f.lacks()
	if len(lacks) == 0 {
		return check
	}
	var parts, helps []string
	for _, one := range lacks {
		parts = append(parts, one.part)
		if !slices.Contains(helps, one.help) {
			helps = append(helps, one.help)
		}
	}
	slices.Sort(parts)
	check.Level, check.Found = warning, "not "+strings.Join(parts, ", ")
	check.Consequence = "roles run without these parts of their sandbox; with the policy isolation=required they are Blocked"
	check.Advice = strings.Join(helps, " ")
	return check
}

func (f Facts) lacks() []lack {
	var lacks []lack
	add := func(is bool, help string, parts ...string) {
		for _, part := range parts {
			if is {
				lacks = append(lacks, lack{part, help})
			}
		}
	}
	can := func(capabilities ...uint) bool {
		return !slices.ContainsFunc(capabilities, func(bit uint) bool { return f.Capabilities&(1<<bit) == 0 })
	}
	root := f.UID == 0
	add(!root, "Run reeved as root.", "own-uid", "mounts", "ipc", "not-dumpable")
	add(root && !can(6, 7), "Give reeved CAP_SETUID and CAP_SETGID.", "own-uid", "not-dumpable")
	add(root && !can(21), "Give reeved CAP_SYS_ADMIN.", "mounts", "ipc")
	add(root && !can(8), "Give reeved CAP_SETPCAP.", "capabilities")
	add(f.LandlockABI < landlockFiles, "Use Linux 5.13 or newer with landlock among the LSMs (boot parameter lsm=).", "landlock-files")
	add(f.LandlockABI < landlockTCP, "Use Linux 6.7 or newer for Landlock that knows ports.", "landlock-tcp")
	add(f.Seccomp != nil, "Use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow the system call seccomp.", "seccomp")
	add(f.NoNewPrivileges != nil, "Use a kernel that is not as old.", "no-new-privileges")
	for _, controller := range []struct{ name, part string }{{"cpu", "cgroup-cpu"}, {"memory", "cgroup-memory"}, {"pids", "cgroup-processes"}} {
		add(!f.Cgroups.limits(controller.name), f.Cgroups.help(), controller.part)
	}
	slices.SortStableFunc(lacks, func(a, b lack) int { return cmp.Compare(a.part, b.part) })
	return lacks
}

// limits says whether roles can be bounded with a controller, in either version of control groups.
func (c Cgroups) limits(controller string) bool {
	return slices.Contains(c.V1, controller) || c.Delegated && slices.Contains(c.Controllers, controller)
}

func (c Cgroups) help() string {
	if c.Mode == "v2" {
		return "Run reeved as root, or as a service with Delegate=yes, and let cpu, memory and pids through in cgroup.subtree_control of the groups above."
	}
	return "Have /sys/fs/cgroup mounted such that reeved may make groups there: with cgroup v2, boot with systemd.unified_cgroup_hierarchy=1."
}
