package sandbox_test

import (
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/sandbox"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// TestLimits: resource limits hold from the first instruction, and the role goes before the core when memory is short.
func TestLimits(t *testing.T) {
	w, host := newWorld(t), probed(t)
	w.policy.Remit.OpenFiles = 77
	w.policy.Defaults.Processes = 300
	child := begin(t, host, w.policy, "read /proc/self/limits", "read /proc/self/oom_score_adj", "many-files", "locked-memory")
	values := make(map[string]string)
	for _, line := range strings.Split(child.results["read /proc/self/limits"], "\n") {
		if len(line) > 47 {
			values[strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:68]), " ")
		}
	}
	want := map[string]string{"Max open files": "77 77", "Max core file size": "1 1", "Max msgqueue size": "0 0", "Max locked memory": "65536 65536", "Max realtime priority": "0 0"}
	if root() {
		want["Max processes"] = "300 300" // there are no control groups in these tests
	}
	for name, value := range want {
		if values[name] != value {
			t.Errorf("%s: %q, want %q", name, values[name], value)
		}
	}
	if got := child.results["many-files"]; !strings.Contains(got, "too many open files") {
		t.Errorf("many files: %q", got)
	}
	if got := child.results["locked-memory"]; !strings.HasPrefix(got, "error") {
		t.Errorf("locked memory: %q", got)
	}
	if own, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || child.results["read /proc/self/oom_score_adj"] == string(own) {
		t.Errorf("the role's oom_score_adj is the core's, %s (%v)", own, err)
	}
}

// TestMissing: every part can be missing, is then named, and the rest holds.
func TestMissing(t *testing.T) {
	w, host := newWorld(t), probed(t)
	w.policy.Defaults = sandbox.Defaults{MemoryBytes: 1, Processes: 300, CPUWeight: 1, OpenFiles: 100}
	all := []string{
		sandbox.MissingOwnUID, sandbox.MissingMounts, sandbox.MissingIPC, sandbox.MissingCapabilities, sandbox.MissingLandlockFiles, sandbox.MissingSeccomp,
		sandbox.MissingNoNewPrivileges, sandbox.MissingNotDumpable, sandbox.MissingLimits, sandbox.MissingMemory, sandbox.MissingProcesses, sandbox.MissingCPU,
	}
	for _, part := range all {
		if part == sandbox.MissingNoNewPrivileges && !root() {
			continue // without it, and without root, the kernel takes neither Landlock nor seccomp
		}
		less := host.Without(part)
		if !named(less.Missing(w.policy), part) {
			t.Errorf("%s is not named in %v", part, less.Missing(w.policy))
		}
		p := w.policy
		if part == sandbox.MissingOwnUID && root() {
			continue // tested where there is no root: as root the role would have the core's user
		}
		got := attempt(t, less, p, "status Seccomp", "read "+w.other+"/file", "status NoNewPrivs")
		if seccomp := got["status Seccomp"]; (seccomp == "2") != (part != sandbox.MissingSeccomp) {
			t.Errorf("without %s: seccomp %s", part, seccomp)
		}
		if !strings.HasPrefix(got["read "+w.other+"/file"], "error") && part != sandbox.MissingLandlockFiles {
			t.Errorf("without %s it reads what is another's", part)
		}
	}
	less := host.Without(sandbox.MissingLandlockTCP)
	if named(less.Missing(w.policy), sandbox.MissingLandlockTCP) {
		t.Error("a role without a network misses ports")
	}
	w.policy.Remit.Connect = remit.Ports{Numbers: []uint16{53}}
	if !named(less.Missing(w.policy), sandbox.MissingLandlockTCP) {
		t.Error("a role with a port does not miss ports")
	}
	w.policy.Remit = remit.Remit{Capabilities: []string{"sys-resource"}}
	if !named(host.Without(sandbox.MissingCapabilities).Missing(w.policy), sandbox.MissingCapabilities) {
		t.Error("capabilities are not missing")
	}
}

func named(missing []*clusterv1.Missing, part string) bool {
	for i, m := range missing {
		if i > 0 && missing[i-1].GetName() >= m.GetName() {
			return false
		}
		if m.GetName() == part && m.GetReason() != "" {
			return true
		}
	}
	return false
}

// TestDescribe: people are told what is enforced, also before a role has run.
func TestDescribe(t *testing.T) {
	w, host := newWorld(t), probed(t)
	w.policy.Private = append(w.policy.Private, "/not/there/yet")
	w.policy.Remit = remit.Remit{Read: []string{"/srv/in"}, Write: []string{"/srv/out"}, Execute: []string{"/opt/bin"}, Listen: remit.Ports{Numbers: []uint16{7443}}}
	got := host.Describe(w.policy)
	if got.GetTier() != clusterv1.Tier_TIER_GRANTED || got.GetUid() != w.policy.UID || got.GetOwnUser() != root() || got.GetOwnMounts() != root() ||
		!got.GetNoNewPrivileges() || got.GetUnixSocketsOnly() || got.GetOpenFiles() != 200 || len(got.GetListens()) != 1 || len(got.GetConnects()) != 0 {
		t.Errorf("described as %v", got)
	}
	for path, lists := range map[string][][]string{
		"/srv/in": {got.GetReads()}, "/srv/out": {got.GetReads(), got.GetWrites()}, "/opt/bin": {got.GetReads(), got.GetExecutes()},
		"/not/there/yet": {got.GetReads(), got.GetWrites()}, "/etc": {got.GetReads()},
	} {
		for _, list := range lists {
			if !strings.Contains(strings.Join(list, " ")+" ", path+" ") {
				t.Errorf("%s is not in %v", path, list)
			}
		}
	}
	if !strings.Contains(strings.Join(got.GetDeniedSystemCalls(), " "), "mounts") {
		t.Errorf("denied: %v", got.GetDeniedSystemCalls())
	}
	w.policy.Remit = remit.Remit{}
	if got := host.Describe(w.policy); !got.GetUnixSocketsOnly() || got.GetTier() != clusterv1.Tier_TIER_CONFINED {
		t.Errorf("described as %v", got)
	}
	w.policy.Remit = remit.Remit{Privileged: true}
	if got := host.Describe(w.policy); got.GetTier() != clusterv1.Tier_TIER_PRIVILEGED || len(got.GetDeniedSystemCalls()) > 0 || len(got.GetMissing()) > 0 {
		t.Errorf("described as %v", got)
	}
}
