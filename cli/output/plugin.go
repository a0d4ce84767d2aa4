package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Plugin is a plugin of the catalog.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digests are the executables, by platform.
	Digests    map[string]string `json:"digests"`
	Generation uint64            `json:"generation"`
	Added      *time.Time        `json:"added"`
	Roles      []PluginRole      `json:"roles"`
}

// AddedPlugin is the document of `reeve plugin add`.
type AddedPlugin struct {
	Plugin
	// DryRun says that the catalog was not changed: it is what would be in it.
	DryRun bool `json:"dry_run"`
}

// PluginRole is a role that a plugin offers, with what it is granted.
type PluginRole struct {
	Role    string `json:"role"`
	Summary string `json:"summary"`
	// ConsensusUser is the one that is granted; empty: none.
	ConsensusUser string   `json:"consensus_user"`
	Requires      []string `json:"requires"`
	Provides      []string `json:"provides"`
	Grants        []Grant  `json:"grants"`
}

// Grant is a power of the host that a role may use.
type Grant struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
}

// Plugins is the document of `reeve plugin list`.
type Plugins struct {
	Plugins []Plugin `json:"plugins"`
}

// NewPlugin makes the document of a catalog entry.
func NewPlugin(p *clusterv1.PluginRecord) Plugin {
	plugin := Plugin{
		Name:       p.GetName(),
		Version:    p.GetVersion(),
		Digests:    dictionary(p.GetDigests()),
		Generation: p.GetGeneration(),
		Added:      moment(p.GetAdded()),
		Roles:      []PluginRole{},
	}
	granted := make(map[string]*clusterv1.RoleGrants)
	for _, grants := range p.GetGrants() {
		granted[grants.GetRole()] = grants
	}
	for _, role := range p.GetManifest().GetRoles() {
		of := granted[role.GetName()]
		grants := []Grant{}
		for _, grant := range of.GetGrants() {
			grants = append(grants, Grant{Name: grant.GetName(), Parameters: dictionary(grant.GetParameters())})
		}
		plugin.Roles = append(plugin.Roles, PluginRole{
			Role:          role.GetName(),
			Summary:       role.GetSummary(),
			ConsensusUser: of.GetConsensusUser(),
			Requires:      list(role.GetRequires()),
			Provides:      list(role.GetProvides()),
			Grants:        grants,
		})
	}
	return plugin
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
func (p AddedPlugin) table(w io.Writer, _ time.Time) {
	is := "is"
	if p.DryRun {
		is = "would be"
	}
	_, _ = fmt.Fprintf(w, "Plugin %s %s %s in the catalog.\n", Clean(p.Name), Clean(p.Version), is)
	for _, platform := range slices.Sorted(maps.Keys(p.Digests)) {
		_, _ = fmt.Fprintf(w, "  %s %s\n", Clean(platform), Clean(p.Digests[platform]))
	}
	for _, role := range p.Roles {
		_, _ = fmt.Fprintf(w, "Role %s %s granted:\n", Clean(role.Role), is)
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
	if p.DryRun {
		_, _ = fmt.Fprintln(w, "The catalog was not changed (--dry-run).")
	}
}

func parameters(of map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(of)) {
		text.WriteString(" " + key + "=" + of[key])
	}
	return text.String()
}
