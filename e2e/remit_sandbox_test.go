package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// kernelsView is a process as the kernel shows it.
type kernelsView struct {
	pid    int
	status string
}

func readProcess(t *testing.T, pid int) kernelsView {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return kernelsView{pid, string(status)}
}

func (k kernelsView) String() string { return fmt.Sprintf("process %d:\n%s", k.pid, k.status) }

// field is the first word of a line of the status.
func (k kernelsView) field(name string) string {
	if fields := k.fields(name); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

func (k kernelsView) fields(name string) []string {
	for line := range strings.Lines(k.status) {
		if values, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(values)
		}
	}
	return nil
}

func (k kernelsView) namespace(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", k.pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// limit is the soft and the hard limit of a resource, as /proc names it.
func (k kernelsView) limit(t *testing.T, name string) string {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", k.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if values, ok := strings.CutPrefix(line, name); ok {
			return strings.Join(strings.Fields(values)[:2], " ")
		}
	}
	t.Fatalf("no %s among %s", name, limits)
	return ""
}

// TestRemitSandboxFromOutside looks with the eyes of the kernel at every built-in role and at one of a third party, and at what the node says of them.
func TestRemitSandboxFromOutside(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addLighthouse(t, c)
		status := c.AwaitUp(t, patience, withLighthouse...)
		seen := make(map[string]string) // what has to be its own, and whose it is
		for _, role := range withLighthouse {
			if len(status.Role(role).Digest) == 0 {
				t.Fatalf("%s is %+v", role, status.Role(role))
			}
			shown := showRole(t, c, role)
			if tier := shown.Instance.Tier; tier != "confined" && tier != "granted" || shown.Sandbox == nil || shown.Sandbox.Tier != tier {
				t.Errorf("%s is %s, want it confined or granted", role, shown)
				continue
			}
			if shown.Instance.PID != status.Role(role).PID {
				t.Errorf("%s is process %d, and shown is %s", role, status.Role(role).PID, shown)
			}
			sandboxOf(t, c, role, shown, seen)
		}
	})
}

func sandboxOf(t *testing.T, c *devcluster.Cluster, role string, shown shownRole, seen map[string]string) {
	t.Helper()
	process, core := readProcess(t, shown.Instance.PID), readProcess(t, c.Core(t).PID)
	box := shown.Sandbox
	missing := make(map[string]bool)
	for _, part := range box.Missing {
		missing[part.Name] = true
		if part.Reason == "" {
			t.Errorf("%s: no reason why %s is missing", role, part.Name)
		}
	}
	if core.field("Uid") == "0" {
		for _, name := range []string{"own-uid", "mounts", "ipc", "capabilities", "seccomp", "no-new-privileges", "not-dumpable", "limits", "landlock-files"} {
			if missing[name] {
				t.Errorf("%s: as root %s is missing: %+v", role, name, box.Missing)
			}
		}
	} else if !missing["own-uid"] || !missing["mounts"] || !missing["ipc"] {
		t.Errorf("%s: as an ordinary user only this is missing: %+v", role, box.Missing)
	}
	want := func(ok bool, what string, arguments ...any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %s; it is shown as %s, and is %s", role, fmt.Sprintf(what, arguments...), shown, process)
		}
	}
	own := func(name, value, cores string) {
		t.Helper()
		other := seen[name+value]
		want(value != cores && other == "", "its %s %s is that of %q or of the core", name, value, other)
		seen[name+value] = role
	}

	want(slices.Equal(process.fields("Uid"), slices.Repeat([]string{strconv.Itoa(int(box.UID))}, 4)), "another user than is shown")
	want(slices.Equal(process.fields("Gid"), slices.Repeat([]string{strconv.Itoa(int(box.GID))}, 4)), "another group than is shown")
	want(box.OwnUser == !missing["own-uid"], "its own user: %t", box.OwnUser)
	if !missing["own-uid"] {
		own("user", process.field("Uid"), "0")
		want(len(process.fields("Groups")) == 0, "it has further groups")
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		// An ordinary user cannot take from the bounding set; with no_new_privs nothing can be got by it.
		bounding := set == "CapBnd" && core.field("Uid") != "0"
		want(process.field(set) == "0000000000000000" || bounding, "%s is %s", set, process.field(set))
	}
	want(len(box.Capabilities) == 0, "it is said to have capabilities")
	want(process.field("NoNewPrivs") == "1" && box.NoNewPrivs, "new privileges")
	want(process.field("Seccomp") == "2" && len(box.DeniedCalls) > 10, "no filter of system calls")
	want(box.OwnMounts == !missing["mounts"] && box.OwnIPC == !missing["ipc"], "its own mounts and IPC are shown as %t and %t", box.OwnMounts, box.OwnIPC)
	if !missing["mounts"] {
		own("mount namespace", process.namespace(t, "mnt"), core.namespace(t, "mnt"))
		// What everybody may read, where nobody looks for it.
		marker := filepath.Join(c.Home, "marker")
		if err := os.WriteFile(marker, []byte("for everybody"), 0o644); err != nil {
			t.Fatal(err)
		}
		want(!exists(t, fmt.Sprintf("/proc/%d/root%s", process.pid, marker)), "it sees %s", marker)
		want(exists(t, fmt.Sprintf("/proc/%d/root/etc/passwd", process.pid)), "it does not see /etc")
	}
	if !missing["ipc"] {
		own("IPC namespace", process.namespace(t, "ipc"), core.namespace(t, "ipc"))
	}
	open := strconv.Itoa(box.OpenFiles)
	want(process.limit(t, "Max open files") == open+" "+open && box.OpenFiles > 0, "its open files are bounded to %s", process.limit(t, "Max open files"))
	// 1 is too little for a file, and has the kernel start no handler either, which it does with 0.
	want(process.limit(t, "Max core file size") == "1 1", "it may leave a core file of %s", process.limit(t, "Max core file size"))
	want(core.limit(t, "Max core file size") == "1 1", "the core may leave a core file of %s", core.limit(t, "Max core file size"))
	want(process.limit(t, "Max locked memory") == "65536 65536", "it may lock %s of memory", process.limit(t, "Max locked memory"))
	// Of what belongs to a process that is not dumpable, root is the owner.
	if info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", process.pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 && !missing["not-dumpable"] {
		want(false, "it is dumpable: %v, %v", info, err)
	}
	groupsOf(t, role, shown, process, missing, own)
}

// groupsOf compares the control groups of a process with those that are shown.
func groupsOf(t *testing.T, role string, shown shownRole, process kernelsView, missing map[string]bool, own func(name, value, cores string)) {
	t.Helper()
	if missing["cgroup-memory"] && missing["cgroup-processes"] && missing["cgroup-cpu"] {
		return
	}
	membership, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", process.pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(shown.Sandbox.ControlGroups) == 0 {
		t.Errorf("%s is in no control group: %s", role, membership)
	}
	for _, group := range shown.Sandbox.ControlGroups {
		processes, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(processes)), strconv.Itoa(process.pid)) {
			t.Errorf("%s is not in the control group %s: %q, %v; it is in %s", role, group, processes, err, membership)
		}
		own("control group", group, "")
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if text, err := os.ReadFile(filepath.Join(group, file)); err == nil && strings.TrimSpace(string(text)) != strconv.FormatInt(shown.Sandbox.MemoryBytes, 10) {
				if strings.Contains(group, "memory") || file == "memory.max" {
					t.Errorf("%s: %s of %s is %s, want %d", role, file, group, text, shown.Sandbox.MemoryBytes)
				}
			}
		}
		if text, err := os.ReadFile(filepath.Join(group, "pids.max")); err == nil && strings.TrimSpace(string(text)) != strconv.Itoa(shown.Sandbox.ProcessesBound) {
			t.Errorf("%s: pids.max of %s is %s, want %d", role, group, text, shown.Sandbox.ProcessesBound)
		}
	}
}
