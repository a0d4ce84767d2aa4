package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/role"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// protocol is the version of the role protocol that the suite uses.
const protocol = "reeve.role.v1"

func manifestChecks() []Check {
	return []Check{
		{
			ID:    "manifest.describe",
			needs: []string{"handshake.socket", "handshake.plain"},
			Sentence: fmt.Sprintf("Describe answers within %s with a manifest, in a process in which no role was started and that has no host: "+
				"whoever adds the plugin to a catalog asks so.", describeTime),
			run: checkDescribe,
		},
		{
			ID:       "manifest.protocols",
			needs:    []string{"manifest.describe"},
			Sentence: "The manifest lists " + protocol + " among its protocols. A core of another version uses the list to say which side must be upgraded.",
			run:      checkProtocols,
		},
		{
			ID:       "manifest.valid",
			needs:    []string{"manifest.describe"},
			Sentence: "Names, the version, capabilities, grants and ports are written as the protocol says, and nothing is over its bounds: the catalog refuses any other manifest.",
			run:      checkManifest,
		},
		{
			ID:       "manifest.schema",
			needs:    []string{"manifest.describe"},
			Sentence: "Each configuration schema is a JSON Schema (draft 2020-12) of an object that refers to nothing outside of itself: by it the cluster refuses a configuration before a role is stopped for it.",
			absent: func(manifest *rolev1.Manifest) string {
				return noneOf(manifest, func(of *rolev1.RoleManifest) bool { return of.GetConfigurationSchema() != "" }, "no role has a configuration schema")
			},
			run: checkSchemas,
		},
		{
			ID:       "manifest.steady",
			needs:    []string{"manifest.describe"},
			Sentence: "Describe returns the same manifest every time, in the same process and in the next one. The owner approves what was shown once.",
			run:      checkSteady,
		},
	}
}

// noneOf returns why a check does not apply if no role has its subject.
func noneOf(manifest *rolev1.Manifest, has func(*rolev1.RoleManifest) bool, why string) string {
	if slices.ContainsFunc(manifest.GetRoles(), has) {
		return ""
	}
	return "the manifest says: " + why
}

func checkDescribe(ctx context.Context, s *subject) (string, error) {
	p, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	manifest, err := p.describe(ctx)
	if err != nil {
		return "", err
	}
	if manifest == nil {
		return "", errors.New("it answers Describe without a manifest")
	}
	s.manifest = manifest
	return fmt.Sprintf("%s %s", manifest.GetName(), manifest.GetVersion()), nil
}

func checkProtocols(_ context.Context, s *subject) (string, error) {
	if !slices.Contains(s.manifest.GetProtocols(), protocol) {
		return "", fmt.Errorf("it names %q, want %s among them", s.manifest.GetProtocols(), protocol)
	}
	return "", nil
}

// checkManifest lets the SDK judge the manifest as if it had been written with it: it refuses what the catalog refuses.
func checkManifest(_ context.Context, s *subject) (string, error) {
	written := role.Plugin{Name: s.manifest.GetName(), Version: s.manifest.GetVersion()}
	var problems []error
	for _, of := range s.manifest.GetRoles() {
		one := role.Role{
			Name: of.GetName(), Summary: of.GetSummary(), ConsensusUser: of.GetConsensusUser(), Requires: of.GetRequires(), Provides: of.GetProvides(),
			GivesUp: of.GetGivesUp(), ConfigurationSchema: of.GetConfigurationSchema(), Run: func(context.Context, *role.Host) error { return nil },
		}
		for _, grant := range of.GetGrants() {
			one.Grants = append(one.Grants, role.Grant{Name: grant.GetName(), Parameters: grant.GetParameters()})
		}
		for _, port := range of.GetPorts() {
			if port.GetNumber() > 65535 {
				problems = append(problems, fmt.Errorf("role %q: port %d", of.GetName(), port.GetNumber()))
			}
			one.Ports = append(one.Ports, role.Port{Name: port.GetName(), Protocol: port.GetProtocol(), Number: uint16(port.GetNumber())})
		}
		for _, name := range of.GetRequires() {
			if name == of.GetName() || slices.Contains(of.GetProvides(), name) {
				problems = append(problems, fmt.Errorf("role %q requires %q, which it is or provides itself", of.GetName(), name))
			}
		}
		if _, known := rolev1.SplitBehaviour_name[int32(of.GetInSplit())]; !known {
			problems = append(problems, fmt.Errorf("role %q: in_split is %d, which nobody knows", of.GetName(), of.GetInSplit()))
		}
		if !limits.StopGraceOK(of.GetStopGrace()) {
			problems = append(problems, fmt.Errorf("role %q: stop_grace is %s, want %s to %s", of.GetName(), of.GetStopGrace().AsDuration(), limits.MinStopGrace, limits.MaxStopGrace))
		}
		written.Roles = append(written.Roles, one)
	}
	_, err := written.Manifest()
	return "", errors.Join(append(problems, err)...)
}

func checkSchemas(_ context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		if of.GetConfigurationSchema() == "" {
			return nil
		}
		schema, err := readSchema(of.GetConfigurationSchema())
		if err != nil {
			return fmt.Errorf("the configuration schema cannot be used: %w", err)
		}
		if !schema.takesObject() {
			return errors.New("the configuration schema takes no JSON object, and a configuration is one")
		}
		return nil
	})
}

func checkSteady(ctx context.Context, s *subject) (string, error) {
	p, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	for range 2 {
		again, err := p.describe(ctx)
		if err != nil {
			return "", err
		}
		if !proto.Equal(again, s.manifest) {
			return "", errors.New("asked again, it gives another manifest")
		}
	}
	return "", nil
}
