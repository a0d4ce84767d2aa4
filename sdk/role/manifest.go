package role

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// capabilityPattern matches a capability: a protocol package's name, at least two words joined by dots.
var capabilityPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+$`)

// grantPattern matches the names of grants, of their parameters and of ports.
var grantPattern = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// protocols are the protocol packages that this SDK supports.
func protocols() []string { return []string{"reeve.role.v1", "reeve.host.v1"} }

const nameRule = "want 1 to 32 of a-z, 0-9 and '-', a letter first and no '-' last"

// Manifest returns the plugin's manifest, or everything that is wrong with it.
func (p Plugin) Manifest() (*rolev1.Manifest, error) {
	var problems []error
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Errorf(format, arguments...))
	}
	if !identity.ValidName(p.Name) {
		problem("plugin name %q: %s", p.Name, nameRule)
	}
	if _, err := semver.StrictNewVersion(p.Version); err != nil {
		problem("version %q: want a semantic version such as 1.2.3, without a leading v: %w", p.Version, err)
	} else if len(p.Version) > limits.Version {
		problem("version %q: it has %d bytes, at most %d are allowed", p.Version, len(p.Version), limits.Version)
	}
	if n := len(p.Roles); n == 0 {
		problem("no roles: a plugin offers at least one")
	} else if n > limits.Roles {
		problem("%d roles: a plugin offers at most %d", n, limits.Roles)
	}
	manifest := &rolev1.Manifest{Name: p.Name, Version: p.Version, Protocols: protocols()}
	names := make(map[string]bool)
	users := make(map[string]string)
	for _, role := range p.Roles {
		if names[role.Name] {
			problem("duplicate role %q", role.Name)
		}
		names[role.Name] = true
		if other, taken := users[role.ConsensusUser]; taken && role.ConsensusUser != "" {
			problem("roles %q and %q: ConsensusUser %q belongs to one role only", other, role.Name, role.ConsensusUser)
		}
		users[role.ConsensusUser] = role.Name
		if role.Configuration != nil {
			if role.ConfigurationSchema != "" {
				problem("role %q: it has both a Configuration, which makes the schema, and a ConfigurationSchema", role.Name)
			}
			var err error
			if role.ConfigurationSchema, err = role.Configuration.Schema(); err != nil {
				problem("role %q: cannot make the schema of the configuration: %w", role.Name, err)
			}
		}
		for _, err := range role.problems() {
			problem("role %q: %w", role.Name, err)
		}
		manifest.Roles = append(manifest.Roles, role.manifest())
	}
	if size := proto.Size(manifest); size > limits.Manifest {
		problem("the manifest has %d bytes, at most %d are allowed: shorten the configuration schemas", size, limits.Manifest)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("plugin %s: %w", p.Name, errors.Join(problems...))
	}
	return manifest, nil
}

func (r Role) manifest() *rolev1.RoleManifest {
	split, _ := r.InSplit.proto()
	manifest := &rolev1.RoleManifest{
		Name:                r.Name,
		Summary:             r.Summary,
		ConsensusUser:       r.ConsensusUser,
		Requires:            r.Requires,
		Provides:            r.Provides,
		ConfigurationSchema: r.ConfigurationSchema,
		StartsFromCache:     r.StartsFromCache,
		EndsWithCore:        r.EndsWithCore,
		InSplit:             split,
		GivesUp:             r.GivesUp,
	}
	if r.StopGrace != 0 {
		manifest.StopGrace = durationpb.New(r.StopGrace)
	}
	for _, grant := range r.Grants {
		manifest.Grants = append(manifest.Grants, &rolev1.Grant{Name: grant.Name, Parameters: maps.Clone(grant.Parameters)})
	}
	for _, port := range r.Ports {
		manifest.Ports = append(manifest.Ports, &rolev1.Port{Name: port.Name, Protocol: port.Protocol, Number: uint32(port.Number)})
	}
	return manifest
}

func (r Role) problems() []error {
	var problems []error
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Errorf(format, arguments...))
	}
	if !identity.ValidName(r.Name) {
		problem("name: %s", nameRule)
	}
	if len(r.Summary) > limits.Summary || !limits.Line(r.Summary) {
		problem("summary: want one line of UTF-8 of at most %d bytes", limits.Summary)
	}
	for _, list := range []struct {
		what       string
		have, most int
	}{
		{"requirements", len(r.Requires), limits.Needs}, {"capabilities", len(r.Provides), limits.Needs},
		{"grants", len(r.Grants), limits.Grants}, {"ports", len(r.Ports), limits.Ports},
	} {
		if list.have > list.most {
			problem("%d %s: at most %d are allowed", list.have, list.what, list.most)
		}
	}
	if r.ConsensusUser != "" && !identity.ValidConsensusUser(r.ConsensusUser) {
		problem("ConsensusUser %q: %s, and %q is the store's own", r.ConsensusUser, nameRule, identity.StoreRoot)
	}
	for _, name := range r.Requires {
		if !identity.ValidName(name) && !validCapability(name) {
			problem("requires %q: neither a role's name nor a capability such as reeve.consensus.v1", name)
		}
	}
	for _, name := range r.Provides {
		if !validCapability(name) {
			problem("provides %q: want a protocol package such as reeve.consensus.v1, at most %d long", name, limits.Capability)
		}
	}
	for _, grant := range r.Grants {
		if len(grant.Name) > limits.GrantName || !grantPattern.MatchString(grant.Name) {
			problem("grant %q: want a name of at most %d of a-z, 0-9 and '-', a letter first", grant.Name, limits.GrantName)
		}
		if n := len(grant.Parameters); n > limits.Parameters {
			problem("grant %q: %d parameters: at most %d are allowed", grant.Name, n, limits.Parameters)
		}
		for key, value := range grant.Parameters {
			if len(key) > limits.GrantName || !grantPattern.MatchString(key) || len(value) > limits.Parameter || !limits.Line(value) {
				problem("grant %q: parameter %q: want a name like that of a grant, and one line of UTF-8 of at most %d bytes", grant.Name, key, limits.Parameter)
			}
		}
	}
	for n, grant := range r.Grants {
		for _, wrong := range remit.Check(&rolev1.Grant{Name: grant.Name, Parameters: grant.Parameters}) {
			wrong.Index = n
			problem("%w", wrong)
		}
	}
	for _, given := range r.GivesUp {
		if !slices.Contains(remit.MayGiveUp(), given) {
			problem("gives up %q: want one of %s", given, strings.Join(remit.MayGiveUp(), ", "))
		}
	}
	for _, port := range r.Ports {
		if len(port.Name) > limits.PortName || !grantPattern.MatchString(port.Name) || port.Number == 0 || (port.Protocol != "tcp" && port.Protocol != "udp") {
			problem("port %q %s/%d: want a name of at most %d of a-z, 0-9 and '-', tcp or udp, and a number from 1 to 65535", port.Name, port.Protocol, port.Number, limits.PortName)
		}
	}
	if r.ConfigurationSchema != "" {
		var schema map[string]any
		if err := json.Unmarshal([]byte(r.ConfigurationSchema), &schema); err != nil {
			problem("configuration schema: want a JSON object: %w", err)
		}
		if len(r.ConfigurationSchema) > limits.Schema {
			problem("configuration schema: %d bytes long, at most %d are allowed", len(r.ConfigurationSchema), limits.Schema)
		}
	}
	if _, known := r.InSplit.proto(); !known {
		problem("InSplit %d: want Told, Continue or Stop", r.InSplit)
	}
	if r.StopGrace != 0 && (r.StopGrace < limits.MinStopGrace || r.StopGrace > limits.MaxStopGrace) {
		problem("StopGrace %s: want %s to %s, or 0 for %s", r.StopGrace, limits.MinStopGrace, limits.MaxStopGrace, limits.StopGrace)
	}
	if r.Run == nil {
		problem("no Run function")
	}
	return problems
}

func validCapability(name string) bool {
	return len(name) <= limits.Capability && capabilityPattern.MatchString(name)
}
