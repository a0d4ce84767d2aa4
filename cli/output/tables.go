package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	_ Document = Status{}
	_ Document = Nodes{}
	_ Document = RoleChange{}
	_ Document = Plugins{}
	_ Document = Plugin{}
	_ Document = Version{}
	_ Document = Down{}
)

func (s Status) table(w io.Writer, now time.Time) {
	row(w, "Node", s.Node.ID)
	row(w, "Cluster", s.Cluster.ID)
	membership := s.Membership.State
	if s.Membership.Reason != "" {
		membership += ": " + s.Membership.Reason
	}
	row(w, "Membership", membership)
	row(w, "Addresses", strings.Join(s.Node.Addresses, ", "))
	row(w, "Isolation", explainIsolation(s.Node.Isolation))
	row(w, "Volume", explainVolume(s.Node.Volume))
	_, _ = fmt.Fprintln(w)
	if len(s.Roles) == 0 {
		_, _ = fmt.Fprintln(w, "No roles.")
		return
	}
	row(w, "ROLE", "STATE", "PID", "RESTARTS", "SINCE", "ENDPOINTS", "REASON")
	for _, role := range s.Roles {
		roleRow(w, role, now)
	}
}

func roleRow(w io.Writer, r Role, now time.Time) {
	pid := ""
	if r.PID != 0 {
		pid = strconv.FormatInt(r.PID, 10)
	}
	var endpoints []string
	for _, endpoint := range r.Endpoints {
		endpoints = append(endpoints, endpoint.Name+"="+endpoint.Address)
	}
	row(w, r.Role, r.State, pid, strconv.FormatUint(uint64(r.Restarts), 10), age(r.Since, now), strings.Join(endpoints, " "), r.Reason)
}

func explainIsolation(kind string) string {
	if kind == "shared-uid" {
		return kind + " (the roles are not protected from each other: reeved does not run as root)"
	}
	return kind
}

func explainVolume(kind string) string {
	if kind == "plain" {
		return kind + " (not encrypted)"
	}
	return kind
}

func (n Nodes) table(w io.Writer, _ time.Time) {
	row(w, "NODE", "STATE", "HEALTHY", "ADDRESSES", "ROLES")
	for _, node := range n.Nodes {
		healthy := "no"
		if node.Healthy {
			healthy = "yes"
		}
		var roles []string
		for _, role := range node.Assigned {
			roles = append(roles, role.Role)
		}
		row(w, node.ID, node.State, healthy, strings.Join(node.Addresses, ","), strings.Join(roles, ","))
	}
}

func (c RoleChange) table(w io.Writer, now time.Time) {
	switch {
	case !c.Waited:
		_, _ = fmt.Fprintf(w, "The cluster has taken the change of role %s on %s; the node follows.\n", c.Role, c.NodeID)
	case c.Instance == nil:
		_, _ = fmt.Fprintf(w, "Role %s is gone from %s.\n", c.Role, c.NodeID)
	default:
		row(w, "ROLE", "STATE", "PID", "RESTARTS", "SINCE", "ENDPOINTS", "REASON")
		roleRow(w, *c.Instance, now)
	}
}

func (p Plugins) table(w io.Writer, now time.Time) {
	row(w, "PLUGIN", "VERSION", "ROLES", "ADDED")
	for _, plugin := range p.Plugins {
		var roles []string
		for _, role := range plugin.Roles {
			roles = append(roles, role.Role)
		}
		row(w, plugin.Name, plugin.Version, strings.Join(roles, ","), age(plugin.Added, now))
	}
}

// table of one plugin says what was granted: the owner's call was the approval, so the owner is to see it.
func (p Plugin) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprintf(w, "Plugin %s %s is in the catalog.\n", Clean(p.Name), Clean(p.Version))
	for _, platform := range slices.Sorted(maps.Keys(p.Digests)) {
		_, _ = fmt.Fprintf(w, "  %s %s\n", Clean(platform), Clean(p.Digests[platform]))
	}
	for _, role := range p.Roles {
		_, _ = fmt.Fprintf(w, "Role %s is granted:\n", Clean(role.Role))
		granted := false
		if role.ConsensusUser != "" {
			granted = true
			_, _ = fmt.Fprintf(w, "  consensus store, as user %s\n", Clean(role.ConsensusUser))
		}
		for _, capability := range role.Provides {
			granted = true
			_, _ = fmt.Fprintf(w, "  to provide %s\n", Clean(capability))
		}
		for _, grant := range role.Grants {
			granted = true
			_, _ = fmt.Fprintf(w, "  %s%s\n", Clean(grant.Name), Clean(parameters(grant.Parameters)))
		}
		if !granted {
			_, _ = fmt.Fprintln(w, "  nothing beyond its own process and directories")
		}
	}
}

func parameters(of map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(of)) {
		text.WriteString(" " + key + "=" + of[key])
	}
	return text.String()
}

func (v Version) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprintf(w, "reeve %s (%s, %s)\n", v.Version, v.Go, v.Platform)
}

func (d Down) table(w io.Writer, _ time.Time) {
	switch {
	case d.Stopped != 0:
		_, _ = fmt.Fprintf(w, "Stopped the node in %s.\n", d.Directory)
	case d.Reaped:
		_, _ = fmt.Fprintf(w, "No node runs in %s; roles that a dead one may have left were looked for and stopped.\n", d.Directory)
	default:
		_, _ = fmt.Fprintf(w, "No node runs in %s.\n", d.Directory)
	}
}
