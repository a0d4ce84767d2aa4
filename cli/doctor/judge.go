package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/corecaps"
)

// The levels of a finding.
const (
	ok      = "ok"
	warning = "warning"
	missing = "missing"
)

// What a node needs.
const (
	// maxRun is the longest path of a run directory: a node adds up to 59 bytes to it, and paths of sockets end at 107.
	maxRun = 48
	// A store grows to its quota of some GiB; below leastBytes the plugins alone do not fit.
	fewBytes, leastBytes = 2 << 30, 256 << 20
	fewFiles, leastFiles = 10_000, 500
	// fewOpenFiles is what a store with some hundred clients uses.
	fewOpenFiles = 4096
)

// Judge makes findings of facts, always the same ones in the same order.
func Judge(f Facts) output.Doctor {
	checks := []output.Check{
		f.user(), f.capabilities(), f.kernel(),
		present("pidfd", f.PIDFD, "processes can be held", true,
			"the core cannot tell that a role has ended from that another process has its ID", "Use Linux 5.3 or newer."),
		present("peer-pidfd", f.PeerPIDFD, "the peer of a socket can be held", false,
			"that a process which connected to the store still lives is not checked", "Use Linux 6.5 or newer."),
		f.landlock(),
		present("seccomp", f.Seccomp, "filters work", false,
			"roles can make every system call", "Use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow the system call seccomp."),
		present("no-new-privileges", f.NoNewPrivileges, "can be set", false,
			"a role can gain privileges by executing a setuid file", "Use a kernel that is not as old."),
		warn(present("user-namespaces", f.UserNamespaces, "can be made", false,
			"roles that run containers for an ordinary user cannot make them",
			"See the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns.")),
		f.cgroups(), f.isolation(), f.tpm(),
		present("luks", f.DMCrypt, "dm-crypt is there", false,
			"volumes cannot be encrypted with luks", "Use a kernel with dm_mod and dm_crypt; fscrypt needs neither."),
		present("fscrypt", f.Data.Fscrypt, "works on "+f.Data.Filesystem, false,
			"the data directory itself cannot be encrypted with fscrypt",
			"Put the data directory on an ext4 or f2fs with the feature encrypt (`tune2fs -O encrypt DEVICE`), on a kernel with CONFIG_FS_ENCRYPTION; "+
				"or have the node make an image (--volume fscrypt), which needs the kernel only."),
		present("cryptsetup", f.Cryptsetup, "is there", false,
			"volumes cannot be encrypted with luks", "Install it (`apt-get install cryptsetup-bin`)."),
		f.image(),
		f.data(), f.space(), f.inodes(), f.run(), f.openFiles(), f.addresses(),
		warn(present("clock", f.Clock, "synchronised", false,
			"certificates of this machine and of others may seem to have ended, or not to have begun",
			"Run a time service, such as chrony or systemd-timesyncd.")),
		f.systemd(),
	}
	runnable := true
	for _, check := range checks {
		runnable = runnable && (!check.Essential || check.Level != missing)
	}
	return output.Doctor{Runnable: runnable, Checks: checks}
}

// good is a finding that needs nothing.
func good(name, found string) output.Check { return output.Check{Name: name, Level: ok, Found: found} }

// present is a finding of something that is there unless err says why not.
func present(name string, err error, found string, essential bool, consequence, advice string) output.Check {
	check := good(name, found)
	check.Essential = essential
	if err != nil {
		check.Level, check.Found, check.Consequence, check.Advice = missing, err.Error(), consequence, advice
	}
	return check
}

// warn makes a missing power, without which a node does nothing worse, a warning.
func warn(check output.Check) output.Check {
	if check.Level == missing {
		check.Level = warning
	}
	return check
}

func (f Facts) user() output.Check {
	check := good("user", "root: every role has a user ID of its own")
	check.Essential = true
	if f.UID != 0 {
		check.Level, check.Found = warning, fmt.Sprintf("user %d", f.UID)
		check.Consequence = "the roles share the user ID of reeved (isolation: shared-uid) and are not protected from each other"
		check.Advice = "Run reeved as root; for developing it may stay as it is."
		return check
	}
	if needed, _ := corecaps.Lacking(f.Capabilities); len(needed) > 0 {
		check.Level, check.Found = missing, "root without "+corecaps.Names(needed)
		check.Consequence = "reeved refuses to start as root: " + corecaps.Explain(needed)
		check.Advice = "Give reeved these capabilities, or run it as an ordinary user."
	}
	return check
}

// capabilities are those that the core can do without.
func (f Facts) capabilities() output.Check {
	check := good("capabilities", "all that a core uses as root")
	_, others := corecaps.Lacking(f.Capabilities)
	switch {
	case f.UID != 0:
		check.Found = "none needed by an ordinary user"
	case len(others) > 0:
		check.Level, check.Found = warning, "not "+corecaps.Names(others)
		check.Consequence = corecaps.Explain(others)
		check.Advice = "Give reeved what you need of them, such as with `docker run --cap-add`; it runs without."
	}
	return check
}

func (f Facts) kernel() output.Check {
	check := good("kernel", f.Kernel)
	major, minor, known := version(f.Kernel)
	if !known || major < 5 || major == 5 && minor < 10 {
		check.Level = warning
		check.Consequence = "Reeve is not tried out on it"
		check.Advice = "Use Linux 5.10 or newer; with 6.5 or newer everything can be enforced."
	}
	return check
}

// version are the first two numbers of a kernel's release.
func version(release string) (major, minor int, known bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	digits := func(text string) (int, error) {
		end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			text = text[:end]
		}
		return strconv.Atoi(text)
	}
	major, err1 := digits(parts[0])
	minor, err2 := digits(parts[1])
	return major, minor, err1 == nil && err2 == nil
}

func (f Facts) landlock() output.Check {
	check := good("landlock", fmt.Sprintf("ABI %d", f.LandlockABI))
	if f.LandlockABI < 1 {
		check.Level, check.Found = missing, "not there"
		check.Consequence = "roles cannot be confined to their own files by Landlock"
		check.Advice = "Use Linux 5.13 or newer with landlock among the LSMs (boot parameter lsm=)."
	}
	return check
}

func (f Facts) cgroups() output.Check {
	check := good("cgroups", f.Cgroups.Mode+", delegated, with "+strings.Join(f.Cgroups.Controllers, " "))
	var lacking []string
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(f.Cgroups.Controllers, controller) {
			lacking = append(lacking, controller)
		}
	}
	switch {
	case f.Cgroups.Mode == "none" || f.Cgroups.Mode == "v1":
		check.Level, check.Found = missing, "no cgroup v2 tree"
		if f.Cgroups.Mode == "v1" {
			check.Found = "v1 only"
		}
		check.Consequence = "the processes of a role cannot be ended all at once, nor limited together"
		check.Advice = "Mount cgroup2 on /sys/fs/cgroup: boot with systemd.unified_cgroup_hierarchy=1."
		if len(f.Cgroups.V1) > 0 {
			check.Level, check.Found = warning, "v1, with "+strings.Join(f.Cgroups.V1, " ")
			check.Consequence = "the processes of a role cannot be ended all at once"
		}
	case f.Cgroups.Mode == "hybrid":
		check.Level, check.Found = warning, "hybrid"
		check.Consequence = "limits of memory and CPU go through cgroup v1; the v2 tree has no controllers"
		check.Advice = "Boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2 alone."
	case !f.Cgroups.Delegated:
		check.Level, check.Found = warning, "v2, not delegated"
		check.Consequence = "roles have no control groups of their own, and so no limits of memory and CPU"
		check.Advice = "Run reeved as root, or as a service with Delegate=yes."
	case len(lacking) > 0:
		check.Level, check.Found = warning, "v2, without "+strings.Join(lacking, " ")
		check.Consequence = "roles cannot be limited by " + strings.Join(lacking, ", ")
		check.Advice = "Let these controllers through in cgroup.subtree_control of the groups above."
	}
	return check
}

func (f Facts) tpm() output.Check {
	check := good("tpm", "2.0")
	switch {
	case f.TPM.Version == "":
		check.Level, check.Found = missing, "none"
	case f.TPM.Version != "2":
		check.Level, check.Found = missing, "version "+f.TPM.Version
	case f.TPM.Usable != nil:
		check.Level, check.Found = warning, "2.0, but "+f.TPM.Usable.Error()
	}
	if check.Level != ok {
		check.Consequence = "the node's secrets cannot be sealed to this machine by a TPM"
		check.Advice = "Switch the TPM on in the firmware, or give a virtual machine one; as an ordinary user, be in the group of /dev/tpmrm0."
	}
	return check
}

// image is what a node needs to have its volume in an image that it makes.
func (f Facts) image() output.Check {
	check := present("loop-image", f.Loop, "loop devices and mkfs.ext4", false, "a volume in an image cannot be mounted",
		"Use a kernel with loop devices, as root; in a container, let it have /dev/loop-control.")
	if f.Loop == nil && f.MakeFilesystem != nil {
		check = present("loop-image", f.MakeFilesystem, "", false, "an image for an encrypted volume cannot be made", "Install it (`apt-get install e2fsprogs`).")
	}
	return check
}

func (f Facts) openFiles() output.Check {
	check := good("open-files", strconv.FormatUint(f.OpenFiles, 10))
	if f.OpenFiles < fewOpenFiles {
		check.Level = warning
		check.Consequence = "a store with many clients runs out of file descriptors"
		check.Advice = fmt.Sprintf("Raise the limit to at least %d: LimitNOFILE= of the service, or `ulimit -Hn`.", fewOpenFiles)
	}
	return check
}

func (f Facts) systemd() output.Check {
	check := good("systemd", "runs")
	if !f.Systemd {
		check.Level, check.Found = warning, "does not run"
		check.Consequence = "the service of the package is not started with the machine"
		check.Advice = "Have what starts this machine's services start reeved, and start it again when it ends."
	}
	return check
}
