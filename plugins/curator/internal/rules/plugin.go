package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

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
	digestPattern     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	platformPattern   = regexp.MustCompile(`^[a-z0-9]{1,16}/[a-z0-9]{1,16}$`)
	portPattern       = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
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
	problems = append(problems, givesUp(field+".gives_up", role.GetGivesUp())...)
	if !limits.StopGraceOK(role.GetStopGrace()) {
		problems.add(field+".stop_grace", "%s is not %s to %s", role.GetStopGrace().AsDuration(), limits.MinStopGrace, limits.MaxStopGrace)
	}
	problems = append(problems, schema(field+".configuration_schema", role.GetConfigurationSchema())...)
	if len(role.GetPorts()) > limits.Ports {
		problems.add(field+".ports", "there are %d ports, at most %d fit", len(role.GetPorts()), limits.Ports)
	}
	for i, port := range role.GetPorts() {
		at := fmt.Sprintf("%s.ports[%d]", field, i)
		if len(port.GetName()) > limits.PortName || !portPattern.MatchString(port.GetName()) {
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

// Plugin checks a record of the genesis catalog by itself: its manifest, its digests, and that nothing is granted to its roles that they do not
// want. Nothing waits when a cluster is made, and nothing ran before.
func Plugin(field string, plugin *clusterv1.PluginRecord) (problems Problems) {
	manifest := plugin.GetManifest()
	problems = Manifest(field+".manifest", manifest)
	if manifest != nil && (plugin.GetName() != manifest.GetName() || plugin.GetVersion() != manifest.GetVersion()) {
		problems.add(field+".name", "the record is about %s %s, its manifest about %s %s", quote(plugin.GetName()), quote(plugin.GetVersion()),
			quote(manifest.GetName()), quote(manifest.GetVersion()))
	}
	problems = append(problems, Digests(field+".digests", plugin.GetDigests())...)
	problems = append(problems, Grants(field+".grants", manifest, plugin.GetGrants())...)
	if plugin.GetWaiting() != nil || plugin.GetPrevious() != nil {
		problems.add(field, "it has a version that waits or that ran before: a cluster is made with one version of each plugin")
	}
	if len(plugin.GetReports()) > 0 {
		problems.add(field+".reports", "what is reported of it is for the cluster to find out, from signed reports")
	}
	if size := proto.Size(plugin); size > MaxPlugin {
		problems.add(field, "the record has %d bytes, at most %d fit", size, MaxPlugin)
	}
	return problems
}

// PluginName checks the name of a plugin in a request.
func PluginName(field, name string) (problems Problems) {
	problems.name(field, "plugin", name)
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

// Digest checks the digest of an executable.
func Digest(field, digest string) (problems Problems) {
	if !digestPattern.MatchString(digest) {
		problems.add(field, "%s is not a digest: \"sha256:\" and 64 hex digits", quote(digest))
	}
	return problems
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
