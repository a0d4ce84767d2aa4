package store

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// RoleProtocol is the version of the role protocol that this core speaks.
const RoleProtocol = "reeve.role.v1"

// Platform is what this core executes: the key of a plugin's digest in its catalog record.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

const (
	// maxShown is how much of a wrong name an error shows, maxManifestProblem how long a problem is at most, in bytes.
	maxShown           = 64
	maxManifestProblem = 264
	// maxProblems is how many problems an error lists.
	maxProblems = 50
)

var (
	// A capability is a protocol package. Its name has a dot, so that it never is the name of a role.
	capabilityPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+$`)
	grantPattern      = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	portPattern       = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// CheckManifest returns nil if a manifest is one that the catalog may hold, a *VersionError if its plugin speaks no version of the role protocol
// that this core speaks, and a *ManifestError with everything that is wrong with it otherwise.
func CheckManifest(m *rolev1.Manifest) error {
	c := &manifestCheck{}
	if !identity.ValidName(m.GetName()) {
		c.add("name: %q is not a name (1 to 32 of a-z, 0-9 and '-', a letter first, no '-' last)", m.GetName())
	}
	if err := checkProtocols(m); err != nil {
		return err
	}
	if _, err := semver.StrictNewVersion(m.GetVersion()); err != nil || len(m.GetVersion()) > limits.Version {
		c.add("version: %q is not a semantic version such as 1.2.3", limits.Cut(m.GetVersion(), maxShown))
	}
	if n := len(m.GetRoles()); n == 0 || n > limits.Roles {
		c.add("roles: %d of them; a plugin offers 1 to %d", n, limits.Roles)
	}
	roles, users := make(map[string]bool), make(map[string]bool)
	for n, r := range m.GetRoles() {
		if c.full() {
			break
		}
		at := "roles[" + strconv.Itoa(n) + "]"
		if roles[r.GetName()] {
			c.add("%s.name: %q is there twice", at, r.GetName())
		}
		roles[r.GetName()] = true
		if user := r.GetConsensusUser(); user != "" {
			if users[user] {
				c.add("%s.consensus_user: %q belongs to another role of the plugin", at, user)
			}
			users[user] = true
		}
		c.role(at, r)
	}
	if size := proto.Size(m); size > limits.Manifest {
		c.add("the manifest has %d bytes; at most %d", size, limits.Manifest)
	}
	if len(c.problems) > 0 {
		return &ManifestError{Plugin: limits.Clean(limits.Cut(m.GetName(), maxShown)), Problems: c.problems}
	}
	return nil
}

// checkProtocols tells which side to upgrade by the version numbers: a plugin that speaks only later versions needs a later core.
func checkProtocols(m *rolev1.Manifest) error {
	if slices.Contains(m.GetProtocols(), RoleProtocol) {
		return nil
	}
	const family, ours = "reeve.role.v", 1
	var theirs []string
	newer := false
	for _, protocol := range m.GetProtocols() {
		if number, ok := strings.CutPrefix(protocol, family); ok && len(theirs) < maxProblems {
			theirs = append(theirs, limits.Clean(limits.Cut(protocol, maxShown)))
			version, err := strconv.Atoi(number)
			newer = newer || err == nil && version > ours
		}
	}
	return &VersionError{
		Plugin:      "plugin " + limits.Clean(limits.Cut(m.GetName(), maxShown)),
		Protocol:    "the role protocol",
		Theirs:      strings.Join(theirs, ", "),
		Ours:        RoleProtocol,
		UpgradeCore: newer,
	}
}

// Digest returns the digest of a plugin's executable for this platform; a *MissingError if there is none.
func Digest(record *clusterv1.PluginRecord) (string, error) {
	digest := record.GetDigests()[Platform]
	if digest == "" {
		return "", &MissingError{Plugin: record.GetName(), Reason: "the catalog has none for " + Platform}
	}
	return digest, nil
}

// ManifestOf is what the manifest of a plugin says of a role; nil if the plugin does not offer it.
func ManifestOf(plugin *clusterv1.PluginRecord, role string) *rolev1.RoleManifest {
	for _, manifest := range plugin.GetManifest().GetRoles() {
		if manifest.GetName() == role {
			return manifest
		}
	}
	return nil
}

type manifestCheck struct {
	problems []string
}

func (c *manifestCheck) full() bool { return len(c.problems) >= maxProblems }

func (c *manifestCheck) add(format string, arguments ...any) {
	if !c.full() {
		c.problems = append(c.problems, limits.Cut(limits.Clean(fmt.Sprintf(format, arguments...)), maxManifestProblem))
	}
}

func (c *manifestCheck) role(at string, r *rolev1.RoleManifest) {
	if !identity.ValidName(r.GetName()) {
		c.add("%s.name: %q is not a name (1 to 32 of a-z, 0-9 and '-', a letter first, no '-' last)", at, r.GetName())
	}
	if len(r.GetSummary()) > limits.Summary || !limits.Line(r.GetSummary()) {
		c.add("%s.summary: want one line of at most %d bytes", at, limits.Summary)
	}
	if user := r.GetConsensusUser(); user != "" && !identity.ValidConsensusUser(user) {
		c.add("%s.consensus_user: %q is not a name that a ConsensusUser may have", at, user)
	}
	c.list(at+".requires", r.GetRequires(), func(name string) bool {
		return identity.ValidName(name) || len(name) <= limits.Capability && capabilityPattern.MatchString(name)
	}, "neither the name of a role nor a capability such as reeve.consensus.v1")
	c.list(at+".provides", r.GetProvides(), func(name string) bool {
		return len(name) <= limits.Capability && capabilityPattern.MatchString(name)
	}, "not a capability such as reeve.consensus.v1")
	for _, name := range r.GetRequires() {
		if name == r.GetName() || slices.Contains(r.GetProvides(), name) {
			c.add("%s.requires: %q is what the role itself provides", at, name)
		}
	}
	c.grants(at, r.GetGrants())
	if schema := r.GetConfigurationSchema(); schema != "" && (len(schema) > limits.Schema || !json.Valid([]byte(schema))) {
		c.add("%s.configuration_schema: want a JSON Schema of at most %d KiB", at, limits.Schema>>10)
	}
	c.ports(at, r.GetPorts())
	if _, known := rolev1.SplitBehaviour_name[int32(r.GetInSplit())]; !known {
		c.add("%s.in_split: %d is unknown to this core", at, r.GetInSplit())
	}
	if !limits.StopGraceOK(r.GetStopGrace()) {
		c.add("%s.stop_grace: %s; want %s to %s", at, r.GetStopGrace().AsDuration(), limits.MinStopGrace, limits.MaxStopGrace)
	}
}

func (c *manifestCheck) list(at string, names []string, valid func(string) bool, complaint string) {
	if len(names) > limits.Needs {
		c.add("%s: %d of them; at most %d", at, len(names), limits.Needs)
		return
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if !valid(name) {
			c.add("%s: %q is %s", at, limits.Cut(name, maxShown), complaint)
		} else if seen[name] {
			c.add("%s: %q is there twice", at, name)
		}
		seen[name] = true
	}
}

func (c *manifestCheck) grants(at string, grants []*rolev1.Grant) {
	if len(grants) > limits.Grants {
		c.add("%s.grants: %d of them; at most %d", at, len(grants), limits.Grants)
		return
	}
	for n, grant := range grants {
		if len(grant.GetName()) > limits.GrantName || !grantPattern.MatchString(grant.GetName()) {
			c.add("%s.grants[%d].name: %q is not the name of a grant", at, n, limits.Cut(grant.GetName(), maxShown))
		}
		if len(grant.GetParameters()) > limits.Parameters {
			c.add("%s.grants[%d].parameters: %d of them; at most %d", at, n, len(grant.GetParameters()), limits.Parameters)
			continue
		}
		for key, value := range grant.GetParameters() {
			if len(key) > limits.GrantName || !grantPattern.MatchString(key) || len(value) > limits.Parameter || !limits.Line(value) {
				c.add("%s.grants[%d].parameters: %q is not valid, or its value is not one line of at most %d bytes", at, n, limits.Cut(key, maxShown), limits.Parameter)
			}
		}
	}
}

func (c *manifestCheck) ports(at string, ports []*rolev1.Port) {
	if len(ports) > limits.Ports {
		c.add("%s.ports: %d of them; at most %d", at, len(ports), limits.Ports)
		return
	}
	type key struct {
		protocol string
		number   uint32
	}
	names, numbers := make(map[string]bool), make(map[key]bool)
	for n, port := range ports {
		k := key{port.GetProtocol(), port.GetNumber()}
		switch {
		case len(port.GetName()) > limits.PortName || !portPattern.MatchString(port.GetName()) || names[port.GetName()]:
			c.add("%s.ports[%d].name: %q is not a name, or is there twice", at, n, limits.Cut(port.GetName(), maxShown))
		case k.protocol != "tcp" && k.protocol != "udp":
			c.add("%s.ports[%d].protocol: %q; want tcp or udp", at, n, limits.Cut(k.protocol, maxShown))
		case k.number < 1 || k.number > 65535 || numbers[k]:
			c.add("%s.ports[%d].number: %d is not a port, or is there twice", at, n, k.number)
		}
		names[port.GetName()], numbers[k] = true, true
	}
}
