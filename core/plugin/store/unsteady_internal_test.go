package store

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The error names the first field that differs, wherever it is in the manifest.
func TestWhereManifestsDiffer(t *testing.T) {
	t.Parallel()
	manifest := func(change func(*rolev1.Manifest)) *rolev1.Manifest {
		m := &rolev1.Manifest{Name: "a", Roles: []*rolev1.RoleManifest{{Name: "one", Grants: []*rolev1.Grant{{Name: "g", Parameters: map[string]string{"k": "v"}}}}}}
		change(m)
		return m
	}
	first := manifest(func(*rolev1.Manifest) {})
	if err := Compare(first, manifest(func(*rolev1.Manifest) {})); err != nil {
		t.Error(err)
	}
	long := strings.Repeat("x", 2*maxDifference)
	for want, second := range map[string]*rolev1.Manifest{
		`name was "a", and when it was asked again name was "b"`: manifest(func(m *rolev1.Manifest) { m.Name = "b" }),
		`roles[0].name was "one", and when it was asked again roles[0].name was "` + long[:maxDifference] + `"`: manifest(func(m *rolev1.Manifest) {
			m.Roles[0].Name = long
		}),
		`roles[0].grants[0].parameters["k"] was "v"`: manifest(func(m *rolev1.Manifest) { m.Roles[0].Grants[0].Parameters["k"] = "\n" }),
		"does not always have the same fields":       manifest(func(m *rolev1.Manifest) { m.Roles = append(m.Roles, &rolev1.RoleManifest{}) }),
		"not always have the same fields":            manifest(func(m *rolev1.Manifest) { m.Roles[0].StopGrace = &durationpb.Duration{} }),
	} {
		if err := Compare(first, second); !errors.Is(err, ErrUnsteady) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
