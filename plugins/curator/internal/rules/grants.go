package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// maxGivesUp is how many groups of system calls a role may give up.
const maxGivesUp = 8

// grants checks a list of grants: what one means, and so whether there is one of that name with those parameters, is said by proto/remit.
func grants(field string, grants []*rolev1.Grant) (problems Problems) {
	if len(grants) > limits.Grants {
		problems.add(field, "there are %d grants, at most %d fit", len(grants), limits.Grants)
		return problems
	}
	for i, grant := range grants {
		at := fmt.Sprintf("%s[%d]", field, i)
		// What is too large is not read any further: a problem quotes what it is about.
		large := grantSize(at, grant)
		if problems = append(problems, large...); len(large) > 0 {
			continue
		}
		for _, wrong := range remit.Check(grant) {
			switch {
			case wrong.Parameter != "":
				problems.add(fmt.Sprintf("%s.parameters[%s]", at, quote(wrong.Parameter)), "%s", limits.Cut(wrong.Problem, maxProblem))
			case !slices.Contains(remit.Known(), grant.GetName()):
				problems.add(at+".name", "%s", wrong.Problem)
			default:
				problems.add(at+".parameters", "%s", wrong.Problem)
			}
		}
	}
	return problems
}

func grantSize(at string, grant *rolev1.Grant) (problems Problems) {
	if len(grant.GetName()) > limits.GrantName {
		problems.add(at+".name", "%s is not the name of a grant, which has at most %d bytes", quote(grant.GetName()), limits.GrantName)
	}
	if len(grant.GetParameters()) > limits.Parameters {
		problems.add(at+".parameters", "there are %d parameters, at most %d fit", len(grant.GetParameters()), limits.Parameters)
		return problems
	}
	for _, key := range slices.Sorted(maps.Keys(grant.GetParameters())) {
		if len(key) > limits.GrantName {
			problems.add(at+".parameters", "%s is not the name of a parameter, which has at most %d bytes", quote(key), limits.GrantName)
		}
		problems.line(fmt.Sprintf("%s.parameters[%s]", at, quote(key)), grant.GetParameters()[key], limits.Parameter)
	}
	return problems
}

func givesUp(field string, groups []string) (problems Problems) {
	if len(groups) > maxGivesUp {
		problems.add(field, "there are %d groups of system calls, at most %d fit", len(groups), maxGivesUp)
		return problems
	}
	for i, group := range groups {
		if !slices.Contains(remit.MayGiveUp(), group) {
			problems.add(fmt.Sprintf("%s[%d]", field, i), "%s cannot be given up: %s can", quote(group), strings.Join(remit.MayGiveUp(), ", "))
		}
	}
	return problems
}

// Grants checks that what is granted to the roles of a plugin is what they want: grants by name (their parameters are the owner's choice), and
// a ConsensusUser as it is declared or none.
func Grants(field string, manifest *rolev1.Manifest, granted []*clusterv1.RoleGrants) (problems Problems) {
	if len(granted) > MaxRoles {
		problems.add(field, "there are grants for %d roles, at most %d fit", len(granted), MaxRoles)
		return problems
	}
	seen := make(map[string]bool)
	for i, entry := range granted {
		at := fmt.Sprintf("%s[%d]", field, i)
		if seen[entry.GetRole()] {
			problems.add(at+".role", "the role %s has grants already: list them in one place", quote(entry.GetRole()))
		}
		seen[entry.GetRole()] = true
		problems = append(problems, RoleGrants(at, manifest, entry)...)
	}
	return problems
}

// RoleGrants checks that what is granted to one role of a plugin is what it wants.
func RoleGrants(at string, manifest *rolev1.Manifest, entry *clusterv1.RoleGrants) (problems Problems) {
	role := findRole(manifest, entry.GetRole())
	if role == nil {
		problems.add(at+".role", "the plugin offers no role %s; its roles are %s", quote(entry.GetRole()), strings.Join(roleNames(manifest), ", "))
		return problems
	}
	if user := entry.GetConsensusUser(); user != "" && user != role.GetConsensusUser() {
		problems.add(at+".consensus_user", "the role %s declares the ConsensusUser %s, not %s: only the declared one can be granted",
			quote(role.GetName()), quote(role.GetConsensusUser()), quote(user))
	}
	problems = append(problems, grants(at+".grants", entry.GetGrants())...)
	for j, grant := range entry.GetGrants() {
		wants := func(wanted *rolev1.Grant) bool { return wanted.GetName() == grant.GetName() }
		if !slices.ContainsFunc(role.GetGrants(), wants) {
			problems.add(fmt.Sprintf("%s.grants[%d].name", at, j), "the manifest of role %s does not want %s: only what it wants can be granted",
				quote(role.GetName()), quote(grant.GetName()))
		}
	}
	return problems
}

// Withheld is something that a role cannot be without, and is not granted.
type Withheld struct {
	Role, Capability string
	// What is "its ConsensusUser", or the name of a grant.
	What string
}

func (w Withheld) String() string {
	return fmt.Sprintf("role %q provides %s, without which the cluster cannot be managed, and would not be granted %s, which it asks for", w.Role, w.Capability, w.What)
}

// WithheldOf returns what would be kept from the roles of a plugin that provide what must not be lost. They are granted all that they ask for, or nobody
// could set it right again.
func WithheldOf(plugin *clusterv1.PluginRecord) []Withheld {
	var withheld []Withheld
	for _, role := range plugin.GetManifest().GetRoles() {
		i := slices.IndexFunc(guarded, func(capability string) bool { return slices.Contains(role.GetProvides(), capability) })
		if i < 0 {
			continue
		}
		granted := remit.ForRole(plugin.GetGrants(), role.GetName())
		if granted.GetConsensusUser() != role.GetConsensusUser() {
			withheld = append(withheld, Withheld{Role: role.GetName(), Capability: guarded[i], What: "its ConsensusUser"})
		}
		for _, grant := range role.GetGrants() {
			if !remit.Has(granted.GetGrants(), grant) {
				withheld = append(withheld, Withheld{Role: role.GetName(), Capability: guarded[i], What: grant.GetName()})
			}
		}
	}
	return withheld
}

// Waiting returns the plugin of which a version that waits for the owner offers a role, or nil if none does.
func Waiting(state *store.State, role string) *clusterv1.PluginRecord {
	for _, plugin := range state.Catalog() {
		if findRole(plugin.GetWaiting().GetManifest(), role) != nil {
			return plugin
		}
	}
	return nil
}
