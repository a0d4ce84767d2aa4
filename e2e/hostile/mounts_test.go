package hostile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mountsOf are the mounts that the test sees, which are the machine's: a line for each. Left out are those that the test itself makes, which are right below its
// directory, and those of other tests, which are somewhere else below that of temporary files, the network
// namespaces of their nodes, or pods of theirs.
func mountsOf(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return mountsIn(string(content), suite.base, os.TempDir())
}

func mountsIn(text, base, temporary string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		path := fields[4]
		others := strings.HasPrefix(path, temporary+"/") && !strings.HasPrefix(path, base+"/") || strings.HasPrefix(path, "/run/reeve-kubernetes/")
		if filepath.Dir(path) != base && !others && !isSpool(path, fields) && !isNamespace(path, fields) {
			found[strings.TrimSpace(line)] = true
		}
	}
	return found
}

// isSpool says whether a mount is what the core makes for the standard error of an instance, where only the core can.
func isSpool(path string, fields []string) bool {
	return filepath.Base(filepath.Dir(path)) == "instances" && filepath.Ext(path) == ".err" && slices.Contains(fields, "reeve")
}

// isNamespace says whether a mount is the network namespace of a node of another test (`reeve dev up --netns`), and not something else that was put in its place.
func isNamespace(path string, fields []string) bool {
	return strings.HasPrefix(path, "/run/netns/reeve-") && slices.Contains(fields, "nsfs")
}

// sameMounts looks whether the machine's mounts are as they were.
func (s *scene) sameMounts(t *testing.T, o *Outcome) {
	t.Helper()
	now := mountsOf(t)
	for line := range now {
		if !s.mounts[line] {
			o.escape("the machine has another mount: %s", line)
		}
	}
	for line := range s.mounts {
		if !now[line] {
			o.escape("the machine has a mount no more: %s", line)
		}
	}
	s.mounts = now
}

// TestMounts checks which mounts are looked at.
func TestMounts(t *testing.T) {
	line := func(path string) string {
		source := "/dev/root"
		if before, spool := strings.CutSuffix(path, " reeve"); spool {
			path, source = before, "reeve"
		}
		if before, namespace := strings.CutSuffix(path, " nsfs"); namespace {
			path, source = before, "nsfs"
		}
		return "36 35 98:0 / " + path + " rw,noatime shared:1 - ext4 " + source + " rw\n"
	}
	for path, seen := range map[string]bool{
		"/": true, "/proc": true, "/tmp": true, "/tmp/base/0": false, "/tmp/base/r0": false, "/tmp/base/0/0/d/data/roles/attacker/mount": true, "/tmp/other/0": false,
		"/tmp/base/0/0/d/run/instances/attacker.1.err reeve": false, "/tmp/base/0/0/d/run/instances/attacker.1.err": true, "/mnt reeve": true,
		"/run/netns/reeve-1a2b3c-1 nsfs": false, "/run/netns/reeve-1a2b3c-1": true, "/run/netns/other nsfs": true, "/run/reeve/1a2b": true,
	} {
		if got := len(mountsIn(line(path), "/tmp/base", "/tmp")) == 1; got != seen {
			t.Errorf("%s: %v", path, got)
		}
	}
}
