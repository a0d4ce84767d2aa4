package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// largest is a role that wants as much as it may, but for its schema.
func largest() *rolev1.Manifest {
	role := &rolev1.RoleManifest{Name: "one", Summary: strings.Repeat("s", limits.Summary), StopGrace: durationpb.New(limits.MaxStopGrace)}
	for n := range limits.Needs {
		role.Requires = append(role.Requires, fmt.Sprintf("%s.v%02d", strings.Repeat("r", limits.Capability-4), n))
		role.Provides = append(role.Provides, fmt.Sprintf("%s.v%02d", strings.Repeat("p", limits.Capability-4), n))
	}
	for n := range limits.Grants {
		role.Grants = append(role.Grants, &rolev1.Grant{
			Name: "read-path", Parameters: map[string]string{"path": fmt.Sprintf("/%s%02d", strings.Repeat("p", limits.Parameter-3), n)},
		})
	}
	for n := range limits.Ports {
		role.Ports = append(role.Ports, &rolev1.Port{Name: fmt.Sprintf("%s%02d", strings.Repeat("p", limits.PortName-2), n), Protocol: "tcp", Number: uint32(n + 1)})
	}
	return &rolev1.Manifest{
		Name: "plugin", Version: "1.0.0-" + strings.Repeat("x", limits.Version-6), Protocols: []string{rules.RoleProtocol}, Roles: []*rolev1.RoleManifest{role},
	}
}

// What the SDK and the core let through is what the catalog takes: the numbers are those of proto/limits.
func TestManifestLimits(t *testing.T) {
	if problems := rules.Manifest("m", largest()); len(problems) > 0 {
		t.Fatalf("the largest is refused: %v", problems)
	}
	for field, spoil := range map[string]func(*rolev1.Manifest){
		"m.version":              func(m *rolev1.Manifest) { m.Version += "x" },
		"m.roles":                func(m *rolev1.Manifest) { m.Roles = make([]*rolev1.RoleManifest, limits.Roles+1) },
		"m.roles[0].summary":     func(m *rolev1.Manifest) { m.Roles[0].Summary += "s" },
		"m.roles[0].requires":    func(m *rolev1.Manifest) { m.Roles[0].Requires = append(m.Roles[0].Requires, "one-more") },
		"m.roles[0].requires[0]": func(m *rolev1.Manifest) { m.Roles[0].Requires[0] += "x" },
		"m.roles[0].provides":    func(m *rolev1.Manifest) { m.Roles[0].Provides = append(m.Roles[0].Provides, "one.more") },
		"m.roles[0].grants":      func(m *rolev1.Manifest) { m.Roles[0].Grants = append(m.Roles[0].Grants, &rolev1.Grant{Name: "more"}) },
		"m.roles[0].grants[1].name": func(m *rolev1.Manifest) {
			m.Roles[0].Grants[1].Name += "x"
		},
		"m.roles[0].grants[0].parameters": func(m *rolev1.Manifest) {
			for n := range limits.Parameters {
				m.Roles[0].Grants[0].Parameters[fmt.Sprintf("more%d", n)] = "x"
			}
		},
		`m.roles[0].grants[1].parameters["path"]`: func(m *rolev1.Manifest) { m.Roles[0].Grants[1].Parameters["path"] += "x" },
		"m.roles[0].gives_up":                     func(m *rolev1.Manifest) { m.Roles[0].GivesUp = make([]string, 9) },
		"m.roles[0].stop_grace":                   func(m *rolev1.Manifest) { m.Roles[0].StopGrace = durationpb.New(limits.MaxStopGrace + 1) },
		"m.roles[0].ports":                        func(m *rolev1.Manifest) { m.Roles[0].Ports = append(m.Roles[0].Ports, m.Roles[0].Ports[0]) },
		"m.roles[0].ports[0].name":                func(m *rolev1.Manifest) { m.Roles[0].Ports[0].Name += "x" },
		"m.roles[0].configuration_schema": func(m *rolev1.Manifest) {
			m.Roles[0].ConfigurationSchema = `{"title":"` + strings.Repeat("x", limits.Schema) + `"}`
		},
		"m": func(m *rolev1.Manifest) {
			m.Roles[0].ConfigurationSchema = `{"title":"` + strings.Repeat("x", limits.Schema-100) + `"}`
			second := proto.CloneOf(m.Roles[0])
			second.Name = "two"
			m.Roles = append(m.Roles, second)
		},
	} {
		manifest := largest()
		spoil(manifest)
		problems := rules.Manifest("m", manifest)
		if len(problems) != 1 || problems[0].Field != field {
			t.Errorf("want one problem with %s, got: %v", field, problems)
		}
	}
}

// A manifest of the largest size fits into its record with digests for every platform, with the grants, and with another such version to go back to.
func TestARecordHoldsAnyManifest(t *testing.T) {
	manifest := largest()
	manifest.Roles[0].ConfigurationSchema = "{}" + strings.Repeat(" ", limits.Schema-2)
	second := proto.CloneOf(manifest.Roles[0])
	second.Name, second.Grants, second.ConfigurationSchema = "two", nil, ""
	manifest.Roles = append(manifest.Roles, second)
	second.ConfigurationSchema = "{}" + strings.Repeat(" ", limits.Manifest-proto.Size(manifest)-100)
	record := &clusterv1.PluginRecord{Name: manifest.Name, Version: manifest.Version, Manifest: manifest, Digests: map[string]string{}}
	for n := range 16 {
		record.Digests[fmt.Sprintf("linux/arch%d", n)] = "sha256:" + strings.Repeat("0", 64)
	}
	record.Grants = remit.Wanted(manifest)
	if problems := rules.Plugin("p", record); len(problems) > 0 {
		t.Error(problems)
	}
	record.Decided = remit.Wanted(manifest)
	record.Previous = &clusterv1.PluginVersion{Version: manifest.Version, Manifest: manifest, Digests: record.Digests}
	if size := proto.Size(record); size > rules.MaxPlugin || size < rules.MaxPlugin-128<<10 {
		t.Errorf("with a version to go back to it has %d bytes, and %d fit", size, rules.MaxPlugin)
	}
}
