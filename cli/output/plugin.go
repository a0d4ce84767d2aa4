package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Plugin is a plugin of the catalog. Version, digests and roles are those of the version that runs: empty as long as none was approved.
type Plugin struct {
	*clusterv1.PluginRecord
	Roles []PluginRole `json:"roles"`
	// Waiting is a version that waits for the owner; null: none does.
	Waiting *PluginVersion `json:"waiting"`
	// Previous is the version that ran before, to which a node goes back if the present one does not work there; null: none.
	Previous *PluginVersion `json:"previous"`
	// Reports are the reports of the conformance suite on executables of these versions.
	Reports []*clusterv1.ConformanceReport `json:"reports"`
}

// PluginRole is a role that the version of a plugin which runs offers, with what it is granted.
type PluginRole struct {
	Role string `json:"role"`
	RoleShape
	// Tier is "confined", "granted" or "privileged".
	Tier string `json:"tier"`
	// ConsensusUser is the one that is granted; empty: none.
	ConsensusUser string          `json:"consensus_user"`
	Grants        []*rolev1.Grant `json:"grants"`
	// Withheld is what it asks for and is not granted.
	Withheld *clusterv1.RoleGrants `json:"withheld"`
}

// RoleShape is what a role says of itself, apart from what it asks for.
type RoleShape struct {
	Summary  string   `json:"summary"`
	Requires []string `json:"requires"`
	Provides []string `json:"provides"`
	// GivesUp are groups of system calls that it does without.
	GivesUp         []string `json:"gives_up"`
	StartsFromCache bool     `json:"starts_from_cache"`
	EndsWithCore    bool     `json:"ends_with_core"`
	// InSplit is "continue", "stop" or "told".
	InSplit string `json:"in_split"`
	// StopGraceSeconds is how long it may take to stop.
	StopGraceSeconds float64 `json:"stop_grace_seconds"`
}

// PluginVersion is a version of a plugin that does not run.
type PluginVersion struct {
	*clusterv1.PluginVersion
	Roles []string `json:"roles"`
	// Asks is all that its roles ask for, New what of that the owner has not decided on.
	Asks []*clusterv1.RoleGrants `json:"asks"`
	New  []*clusterv1.RoleGrants `json:"new"`
}

// Plugins is the document of `reeve plugin list`.
type Plugins struct {
	Plugins []Plugin `json:"plugins"`
}

// NewPlugin makes the document of a catalog entry.
func NewPlugin(p *clusterv1.PluginRecord) Plugin {
	plugin := Plugin{
		PluginRecord: p, Roles: []PluginRole{}, Waiting: NewPluginVersion(p.GetWaiting(), p), Previous: NewPluginVersion(p.GetPrevious(), p), Reports: p.GetReports(),
	}
	for _, role := range p.GetManifest().GetRoles() {
		granted := remit.ForRole(p.GetGrants(), role.GetName())
		powers, _ := remit.Of(granted.GetGrants())
		plugin.Roles = append(plugin.Roles, PluginRole{
			Role:          role.GetName(),
			RoleShape:     newShape(role),
			Tier:          Kind(powers.Tier()),
			ConsensusUser: granted.GetConsensusUser(),
			Grants:        granted.GetGrants(),
			Withheld:      withheld(role, granted),
		})
	}
	return plugin
}

// withheld is what a role asks for and is not granted. What is granted under the name of something that it asks for is that, with another parameter.
func withheld(role *rolev1.RoleManifest, granted *clusterv1.RoleGrants) *clusterv1.RoleGrants {
	kept := &clusterv1.RoleGrants{Role: role.GetName()}
	if granted.GetConsensusUser() != role.GetConsensusUser() {
		kept.ConsensusUser = role.GetConsensusUser()
	}
	for _, wanted := range role.GetGrants() {
		instead := slices.ContainsFunc(granted.GetGrants(), func(grant *rolev1.Grant) bool {
			return grant.GetName() == wanted.GetName() && !remit.Has(role.GetGrants(), grant)
		})
		if !instead && !remit.Has(granted.GetGrants(), wanted) {
			kept.Grants = append(kept.Grants, wanted)
		}
	}
	return kept
}

func newShape(role *rolev1.RoleManifest) RoleShape {
	return RoleShape{
		Summary:         role.GetSummary(),
		Requires:        role.GetRequires(),
		Provides:        role.GetProvides(),
		GivesUp:         role.GetGivesUp(),
		StartsFromCache: role.GetStartsFromCache(),
		EndsWithCore:    role.GetEndsWithCore(),
		InSplit:         InSplit(role.GetInSplit()),

		StopGraceSeconds: limits.StopGraceOf(role.GetStopGrace()).Seconds(),
	}
}

// StopGrace is how long a role may take to stop, for people.
func StopGrace(seconds float64) string { return time.Duration(seconds * float64(time.Second)).String() }

// InSplit says what a role does in Split: "continue", "stop" or "told".
func InSplit(behaviour rolev1.SplitBehaviour) string {
	return word(behaviour.Descriptor(), behaviour.Number())
}

// NewPluginVersion makes the document of a version of a plugin that does not run; nil for nil.
func NewPluginVersion(version *clusterv1.PluginVersion, record *clusterv1.PluginRecord) *PluginVersion {
	if version == nil {
		return nil
	}
	document := &PluginVersion{
		PluginVersion: version, Roles: []string{},
		Asks: remit.Wanted(version.GetManifest()),
		New:  remit.Beyond(version.GetManifest(), record.GetDecided(), record.GetGrants()),
	}
	for _, role := range version.GetManifest().GetRoles() {
		document.Roles = append(document.Roles, role.GetName())
	}
	return document
}

func (p Plugins) table(w io.Writer, now time.Time) {
	row(w, "PLUGIN", "VERSION", "ROLES", "ADDED", "WAITING", "REPORT")
	for _, plugin := range p.Plugins {
		var roles []string
		for _, role := range plugin.Roles {
			roles = append(roles, role.Role)
		}
		waiting := ""
		if plugin.Waiting != nil {
			waiting = plugin.Waiting.GetVersion()
		}
		row(w, plugin.GetName(), plugin.GetVersion(), strings.Join(roles, ","), age(moment(plugin.Added), now), waiting, plugin.proof())
	}
}

// digests writes the executables of a version.
func digests(w io.Writer, of map[string]string) {
	for _, platform := range slices.Sorted(maps.Keys(of)) {
		_, _ = fmt.Fprintf(w, "  %s %s\n", Clean(platform), Clean(of[platform]))
	}
}

// granted writes what roles may do: the owner is to see what was granted.
func granted(w io.Writer, roles []PluginRole, is string) {
	for _, role := range roles {
		_, _ = fmt.Fprintf(w, "Role %s %s granted:\n", Clean(role.Role), is)
		may := ExplainGrants(&clusterv1.RoleGrants{ConsensusUser: role.ConsensusUser, Grants: role.Grants})
		for _, capability := range role.Provides {
			may = append(may, "provide "+Clean(capability))
		}
		if len(may) == 0 {
			may = []string{"nothing beyond its own process and directories"}
		}
		for _, line := range may {
			_, _ = fmt.Fprintln(w, "  "+line)
		}
		if none(role.Withheld) {
			continue
		}
		_, _ = fmt.Fprintf(w, "Role %s %s refused:\n", Clean(role.Role), is)
		for _, line := range ExplainGrants(role.Withheld) {
			_, _ = fmt.Fprintln(w, "  "+line)
		}
	}
}

// asked writes what roles ask for.
func asked(w io.Writer, roles []*clusterv1.RoleGrants) {
	for _, role := range roles {
		_, _ = fmt.Fprintf(w, "Role %s asks to:\n", Clean(role.GetRole()))
		for _, line := range ExplainGrants(role) {
			_, _ = fmt.Fprintln(w, "  "+line)
		}
	}
}
