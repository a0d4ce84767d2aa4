package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// RoleProtocol is the protocol that every plugin of this version of Reeve must speak.
const RoleProtocol = "reeve.role.v1"

var (
	digestPattern   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	platformPattern = regexp.MustCompile(`^[a-z0-9]{1,16}/[a-z0-9]{1,16}$`)
	// grantPattern is the form of the names of grants, of their parameters and of ports.
	grantPattern      = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	capabilityPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*$`)
)

// Manifest checks what a plugin says of itself.
func Manifest(field string, manifest *rolev1.Manifest) (problems Problems) {
	if manifest == nil {
		problems.add(field, "there is no manifest")
		return problems
	}
	problems.name(field+".name", "plugin", manifest.GetName())
	if _, err := semver.StrictNewVersion(manifest.GetVersion()); err != nil {
		problems.add(field+".version", "%s is not a semantic version such as 1.2.3, without a leading v", quote(manifest.GetVersion()))
	}
	problems.line(field+".version", manifest.GetVersion(), limits.Version)
	if !slices.Contains(manifest.GetProtocols(), RoleProtocol) {
		problems.add(field+".protocols", "the plugin speaks %q and this cluster %q: build the plugin with an SDK of this version of Reeve",
			manifest.GetProtocols(), RoleProtocol)
	}
	if n := len(manifest.GetRoles()); n == 0 || n > limits.Roles {
		problems.add(field+".roles", "there are %d roles, a plugin offers 1 to %d", n, limits.Roles)
		return problems
	}
	if size := proto.Size(manifest); size > limits.Manifest {
		problems.add(field, "the manifest has %d bytes, at most %d fit", size, limits.Manifest)
		return problems
	}
	seen := make(map[string]bool)
	users := make(map[string]string)
	for i, role := range manifest.GetRoles() {
		at := fmt.Sprintf("%s.roles[%d]", field, i)
		problems = append(problems, roleManifest(at, role)...)
		if seen[role.GetName()] {
			problems.add(at+".name", "the role %s is declared twice", quote(role.GetName()))
		}
		seen[role.GetName()] = true
		if user := role.GetConsensusUser(); user != "" {
			if other, taken := users[user]; taken {
				problems.add(at+".consensus_user", "%s is already the ConsensusUser of role %s: a ConsensusUser belongs to one role", quote(user), quote(other))
			}
			users[user] = role.GetName()
		}
	}
	return problems
}

func roleManifest(field string, role *rolev1.RoleManifest) (problems Problems) {
	problems.name(field+".name", "role", role.GetName())
	problems.line(field+".summary", role.GetSummary(), limits.Summary)
	if role.GetConsensusUser() != "" {
		problems.name(field+".consensus_user", "ConsensusUser", role.GetConsensusUser())
		if role.GetConsensusUser() == identity.StoreRoot {
			problems.add(field+".consensus_user", "%q is the store's own all-powerful user: choose another name", identity.StoreRoot)
		}
	}
	for _, list := range []struct {
		field string
		names []string
	}{{".requires", role.GetRequires()}, {".provides", role.GetProvides()}} {
		if len(list.names) > limits.Needs {
			problems.add(field+list.field, "it names %d roles or capabilities, at most %d fit", len(list.names), limits.Needs)
			continue
		}
		for i, name := range list.names {
			if len(name) > limits.Capability || !capabilityPattern.MatchString(name) {
				problems.add(fmt.Sprintf("%s%s[%d]", field, list.field, i), "%s is neither a role nor a capability such as %q", quote(name), RoleProtocol)
			}
		}
	}
	problems = append(problems, grants(field+".grants", role.GetGrants())...)
	problems = append(problems, schema(field+".configuration_schema", role.GetConfigurationSchema())...)
	if len(role.GetPorts()) > limits.Ports {
		problems.add(field+".ports", "there are %d ports, at most %d fit", len(role.GetPorts()), limits.Ports)
	}
	for i, port := range role.GetPorts() {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		if len(port.GetName()) > limits.PortName || !grantPattern.MatchString(port.GetName()) {
			problems.add(at+".name", "%s is not the name of a port: at most %d of a-z, 0-9 and '-', a letter first", quote(port.GetName()), limits.PortName)
		}
		if port.GetProtocol() != "tcp" && port.GetProtocol() != "udp" {
			problems.add(at+".protocol", "%s is neither \"tcp\" nor \"udp\"", quote(port.GetProtocol()))
		}
		if port.GetNumber() == 0 || port.GetNumber() > 65535 {
			problems.add(at+".number", "%d is not a port, which is 1 to 65535", port.GetNumber())
		}
	}
	return problems
}

func grants(field string, grants []*rolev1.Grant) (problems Problems) {
	if len(grants) > limits.Grants {
		problems.add(field, "there are %d grants, at most %d fit", len(grants), limits.Grants)
		return problems
	}
	for i, grant := range grants {
		at := fmt.Sprintf("%s[%d]", field, i)
		if len(grant.GetName()) > limits.GrantName || !grantPattern.MatchString(grant.GetName()) {
			problems.add(at+".name", "%s is not the name of a grant: at most %d of a-z, 0-9 and '-', a letter first", quote(grant.GetName()), limits.GrantName)
		}
		if len(grant.GetParameters()) > limits.Parameters {
			problems.add(at+".parameters", "there are %d parameters, at most %d fit", len(grant.GetParameters()), limits.Parameters)
		}
		for _, key := range slices.Sorted(maps.Keys(grant.GetParameters())) {
			if len(key) > limits.GrantName || !grantPattern.MatchString(key) {
				problems.add(at+".parameters", "%s is not the name of a parameter, which is like that of a grant", quote(key))
			}
			problems.line(fmt.Sprintf("%s.parameters[%s]", at, quote(key)), grant.GetParameters()[key], limits.Parameter)
		}
	}
	return problems
}

// Plugin checks a record of the catalog by itself: its manifest, its digests, and that nothing is granted to its roles that they do not
// want.
func Plugin(field string, plugin *clusterv1.PluginRecord) (problems Problems) {
	manifest := plugin.GetManifest()
	problems = Manifest(field+".manifest", manifest)
	if manifest != nil && (plugin.GetName() != manifest.GetName() || plugin.GetVersion() != manifest.GetVersion()) {
		problems.add(field+".name", "the record is about %s %s, its manifest about %s %s", quote(plugin.GetName()), quote(plugin.GetVersion()),
			quote(manifest.GetName()), quote(manifest.GetVersion()))
	}
	problems = append(problems, Digests(field+".digests", plugin.GetDigests())...)
	problems = append(problems, Grants(field+".grants", manifest, plugin.GetGrants())...)
	if size := proto.Size(plugin); size > MaxPlugin {
		problems.add(field, "the record has %d bytes, at most %d fit", size, MaxPlugin)
	}
	return problems
}

// Digests checks the digests of a plugin's executable.
func Digests(field string, digests map[string]string) (problems Problems) {
	if len(digests) == 0 || len(digests) > maxPlatforms {
		problems.add(field, "there are digests for %d platforms, a plugin has 1 to %d", len(digests), maxPlatforms)
		return problems
	}
	for _, platform := range slices.Sorted(maps.Keys(digests)) {
		if !platformPattern.MatchString(platform) {
			problems.add(field, "%s is not a platform such as \"linux/amd64\"", quote(platform))
		}
		if !digestPattern.MatchString(digests[platform]) {
			problems.add(field, "%s, for %s, is not a digest: \"sha256:\" and 64 hex digits", quote(digests[platform]), quote(platform))
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
		role := findRole(manifest, entry.GetRole())
		if role == nil {
			problems.add(at+".role", "the plugin offers no role %s; its roles are %s", quote(entry.GetRole()), strings.Join(roleNames(manifest), ", "))
			continue
		}
		if seen[entry.GetRole()] {
			problems.add(at+".role", "the role %s has grants already: list them in one place", quote(entry.GetRole()))
		}
		seen[entry.GetRole()] = true
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
	}
	return problems
}

// Conflict is a name that a plugin claims and another plugin of the catalog has.
type Conflict struct {
	// What is "role" or "ConsensusUser".
	What, Name string
	// Owner is the plugin that has it, OwnerRole the role of it.
	Owner, OwnerRole string
}

func (c Conflict) String() string {
	if c.What == "role" {
		return fmt.Sprintf("the role %q belongs to plugin %q", c.Name, c.Owner)
	}
	return fmt.Sprintf("the ConsensusUser %q belongs to role %q of plugin %q", c.Name, c.OwnerRole, c.Owner)
}

// Conflicts returns which names of a manifest belong to other plugins. A ConsensusUser belongs to the role that declares it, granted or
// not.
func Conflicts(catalog []*clusterv1.PluginRecord, manifest *rolev1.Manifest) []Conflict {
	var conflicts []Conflict
	for _, other := range catalog {
		if other.GetName() == manifest.GetName() {
			continue
		}
		for _, theirs := range other.GetManifest().GetRoles() {
			for _, ours := range manifest.GetRoles() {
				if ours.GetName() == theirs.GetName() {
					conflicts = append(conflicts, Conflict{What: "role", Name: ours.GetName(), Owner: other.GetName(), OwnerRole: theirs.GetName()})
				}
				if user := ours.GetConsensusUser(); user != "" && user == theirs.GetConsensusUser() {
					conflicts = append(conflicts, Conflict{What: "ConsensusUser", Name: user, Owner: other.GetName(), OwnerRole: theirs.GetName()})
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

func findRole(manifest *rolev1.Manifest, name string) *rolev1.RoleManifest {
	for _, role := range manifest.GetRoles() {
		if role.GetName() == name {
			return role
		}
	}
	return nil
}

func roleNames(manifest *rolev1.Manifest) []string {
	var names []string
	for _, role := range manifest.GetRoles() {
		names = append(names, role.GetName())
	}
	return names
}
