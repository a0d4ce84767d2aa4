package rules

import (
	"fmt"
	"slices"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// RolesOf returns the names of all roles that a plugin of the catalog offers, in whichever version: sorted, each once.
func RolesOf(plugin *clusterv1.PluginRecord) []string {
	return namesOf(plugin, (*rolev1.RoleManifest).GetName)
}

// ConsensusUsers returns all ConsensusUsers that a plugin of the catalog declares, in whichever version, granted or not: sorted, each once.
func ConsensusUsers(plugin *clusterv1.PluginRecord) []string {
	return namesOf(plugin, (*rolev1.RoleManifest).GetConsensusUser)
}

func namesOf(plugin *clusterv1.PluginRecord, name func(*rolev1.RoleManifest) string) []string {
	var names []string
	for _, offer := range offers(plugin) {
		for _, role := range offer.manifest.GetRoles() {
			if name(role) != "" {
				names = append(names, name(role))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Conflict is a name that a plugin claims and another plugin of the catalog has.
type Conflict struct {
	// What is "role" or "ConsensusUser".
	What, Name string
	// Owner is the plugin that has it, OwnerRole the role of it.
	Owner, OwnerRole string
	// Of says which version of the plugin has it, if it is not the one that runs: "version 1.2.0, which waits".
	Of string
}

func (c Conflict) String() string {
	text := fmt.Sprintf("the role %q belongs to plugin %q", c.Name, c.Owner)
	if c.What != "role" {
		text = fmt.Sprintf("the ConsensusUser %q belongs to role %q of plugin %q", c.Name, c.OwnerRole, c.Owner)
	}
	if c.Of != "" {
		text += " (" + c.Of + ")"
	}
	return text
}

// offer is what one version of a plugin in the catalog says of itself.
type offer struct {
	manifest *rolev1.Manifest
	of       string
}

// offers returns all that a plugin of the catalog has or may come to have: what runs, what waits for the owner, and what nodes go back to.
func offers(plugin *clusterv1.PluginRecord) []offer {
	var all []offer
	if plugin.GetManifest() != nil {
		all = append(all, offer{manifest: plugin.GetManifest()})
	}
	if waiting := plugin.GetWaiting(); waiting != nil {
		all = append(all, offer{waiting.GetManifest(), fmt.Sprintf("version %s, which waits", waiting.GetVersion())})
	}
	if previous := plugin.GetPrevious(); previous != nil {
		all = append(all, offer{previous.GetManifest(), fmt.Sprintf("version %s, to which nodes may go back", previous.GetVersion())})
	}
	return all
}

// Conflicts returns which names of a manifest belong to other plugins, each once. A ConsensusUser belongs to the role that declares it, granted or
// not, and a name is taken by every version of a plugin that runs, may come to run, or may be gone back to.
func Conflicts(catalog []*clusterv1.PluginRecord, manifest *rolev1.Manifest) []Conflict {
	var conflicts []Conflict
	add := func(conflict Conflict) {
		known := func(other Conflict) bool {
			return other.What == conflict.What && other.Name == conflict.Name && other.Owner == conflict.Owner
		}
		if !slices.ContainsFunc(conflicts, known) {
			conflicts = append(conflicts, conflict)
		}
	}
	for _, other := range catalog {
		if other.GetName() == manifest.GetName() {
			continue
		}
		for _, offer := range offers(other) {
			for _, theirs := range offer.manifest.GetRoles() {
				for _, ours := range manifest.GetRoles() {
					if ours.GetName() == theirs.GetName() {
						add(Conflict{What: "role", Name: ours.GetName(), Owner: other.GetName(), OwnerRole: theirs.GetName(), Of: offer.of})
					}
					if user := ours.GetConsensusUser(); user != "" && user == theirs.GetConsensusUser() {
						add(Conflict{What: "ConsensusUser", Name: user, Owner: other.GetName(), OwnerRole: theirs.GetName(), Of: offer.of})
					}
				}
			}
		}
	}
	return conflicts
}

// Usurpation is a guarded capability that a role of a plugin claims and the plugin does not have.
type Usurpation struct {
	Role, Capability string
	// Owner is the plugin of the catalog that has it, OwnerRole the role of it; empty if none has.
	Owner, OwnerRole string
}

func (u Usurpation) String() string {
	owner := "no plugin of the catalog provides"
	if u.Owner != "" {
		owner = fmt.Sprintf("role %q of plugin %q provides", u.OwnerRole, u.Owner)
	}
	return fmt.Sprintf("its role %q claims %s, which %s", u.Role, u.Capability, owner)
}

// Usurpations returns which of the capabilities without which a cluster cannot be managed a manifest claims anew. A plugin has such a capability
// from the genesis catalog on, and its later versions after it; nobody gets one afterwards. What provides them belongs to the
// trusted base, and counts for whether the last one stays.
func Usurpations(catalog []*clusterv1.PluginRecord, manifest *rolev1.Manifest) []Usurpation {
	var usurpations []Usurpation
	for _, capability := range guarded {
		owner, ownerRole, has := "", "", false
		for _, plugin := range catalog {
			if role := providerIn(plugin.GetManifest(), capability); role != "" {
				owner, ownerRole = plugin.GetName(), role
				has = has || owner == manifest.GetName()
			}
		}
		if role := providerIn(manifest, capability); role != "" && !has {
			usurpations = append(usurpations, Usurpation{Role: role, Capability: capability, Owner: owner, OwnerRole: ownerRole})
		}
	}
	return usurpations
}

// providerIn returns the role of a manifest that provides a capability, or "".
func providerIn(manifest *rolev1.Manifest, capability string) string {
	for _, role := range manifest.GetRoles() {
		if slices.Contains(role.GetProvides(), capability) {
			return role.GetName()
		}
	}
	return ""
}
