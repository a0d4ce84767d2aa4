package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// arguments are what an attacker is assumed to know: every path, process and number that there is.
func (s *scene) arguments(t *testing.T, row Row) map[string]string {
	t.Helper()
	pids := []string{strconv.Itoa(s.victim.PID), strconv.Itoa(s.core.PID), strconv.Itoa(s.status.Role("consensus").PID), "1"}
	directory := s.cluster.State()
	below := func(patterns ...string) string {
		var found []string
		for _, pattern := range patterns {
			paths, _ := filepath.Glob(filepath.Join(directory, pattern))
			found = append(found, paths...)
		}
		return strings.Join(found, " ")
	}
	a := map[string]string{
		"pids": strings.Join(pids, " "), "lease": s.known["lease"], "empty": s.known["empty"], "uid": fmt.Sprint(s.victim.UID),
		"hostname": "hostile-was-here", "instance": s.status.Role("victim").InstanceID, "target": s.known["socket"],
		"targets": below("data/roles/victim/secret", "data/roles/victim/environment") + " " + filepath.Join(s.disk, "other") + " /etc/passwd",
	}
	switch row.ID {
	case "sockets.consensus":
		a["access"] = s.globs(t, row.Role, "access/*/*")
		a["pids"] = a["pids"][:strings.LastIndex(a["pids"], " ")]
	case "sockets.host":
		a["hosts"] = s.globs(t, row.Role, "host/*/host.sock")
	case "sockets.role":
		a["plugins"], a["doors"] = s.globs(t, row.Role, "plugin/victim.*/plugin.sock", "plugin/curator.*/*.sock", "plugin/curator.*/plugin*"), s.globs(t, row.Role, "plugin/victim.*/door")
	case "sockets.node":
		a["node"] = s.globs(t, row.Role, "node.sock")
	case "sockets.abstract":
		a["abstract"] = strings.TrimPrefix(s.bait.Addr().String(), "@")
	case "sockets.makes":
		a["directories"] = s.globs(t, row.Role, "host", "access", "plugin", "instances", "host/victim.*", "access/victim.*", "plugin/victim.*")
	case "sockets.swapdir":
		a["logs"] = below("data/logs/attacker.log", "data/logs/victim.log")
	case "files.secrets":
		a["paths"] = below("system", "system/*", "owner.key", "reeved.yaml")
	case "files.roles":
		a["paths"] = below("data/roles", "data/roles/victim", "data/roles/victim/*", "data/roles/consensus", "data/roles/curator", "data/logs", "data/logs/victim.log") +
			" " + s.globs(t, row.Role, "plugin/victim.*", "plugin/victim.*/secret")
	case "files.core":
		a["paths"] = below("reeved.log", "data", "data/*") + " " + s.globs(t, row.Role, "instances", "instances/*", "node.sock")
	case "host.links", "host.race":
		a["target"] = filepath.Join(s.disk, "other")
	case "binary.replace":
		a["paths"] = below("data/plugins", "data/plugins/*")
	case "binary.other":
		a["programs"] = below("data/plugins/*")
	case "binary.memfd":
		a["paths"] = below("owner.key", "data/roles/victim/secret") + " /etc/shadow /root"
		a["copy"] = s.cluster.Path("data", "roles", row.Role, "copy")
		content, err := os.ReadFile(s.plugin)
		if err == nil {
			err = os.WriteFile(a["copy"], content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	case "network.none", "network.connect":
		a["addresses"] = s.listener.Addr().String()
		for _, curator := range s.status.Cluster.Curators {
			a["addresses"] += " " + curator
		}
	}
	return a
}

// globs are all paths that fit patterns below the node's run directory (not links of it), but those of a role.
func (s *scene) globs(t *testing.T, but string, patterns ...string) string {
	t.Helper()
	run, err := filepath.EvalSymlinks(s.cluster.Path("run"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(run, pattern))
		for _, path := range paths {
			if !strings.Contains(path, "/"+but+".") {
				found = append(found, path)
			}
		}
	}
	if len(found) > 6 {
		found = found[:6]
	}
	return strings.Join(found, " ")
}
