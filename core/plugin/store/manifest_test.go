package store

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func validManifest() *rolev1.Manifest {
	return &rolev1.Manifest{
		Name: "valid", Version: "1.2.3-rc.1+build", Protocols: []string{"reeve.role.v1"},
		Roles: []*rolev1.RoleManifest{{
			Name: "one", Summary: "does the one thing", ConsensusUser: "one", Requires: []string{"other", "reeve.consensus.v1"},
			Provides: []string{"example.one.v1"}, Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": "/etc/hosts"}}},
			ConfigurationSchema: `{"type":"object"}`, Ports: []*rolev1.Port{{Name: "http", Protocol: "tcp", Number: 80}},
			InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP, StopGrace: durationpb.New(limits.MaxStopGrace),
		}, {Name: "two"}},
	}
}

func TestManifestIsChecked(t *testing.T) {
	t.Parallel()
	if err := CheckManifest(validManifest()); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(m *rolev1.Manifest){
		"name: ":                                    func(m *rolev1.Manifest) { m.Name = "../etc" },
		"version: ":                                 func(m *rolev1.Manifest) { m.Version = "v1.2" },
		"roles: 0":                                  func(m *rolev1.Manifest) { m.Roles = nil },
		"roles: 65":                                 func(m *rolev1.Manifest) { m.Roles = make([]*rolev1.RoleManifest, 65) },
		"roles[1].name: \"one\" is there":           func(m *rolev1.Manifest) { m.Roles[1].Name = "one" },
		"roles[0].name: ":                           func(m *rolev1.Manifest) { m.Roles[0].Name = "_describe" },
		"roles[0].summary: ":                        func(m *rolev1.Manifest) { m.Roles[0].Summary = "two\nlines" },
		"roles[0].consensus_user: ":                 func(m *rolev1.Manifest) { m.Roles[0].ConsensusUser = "a/b" },
		"roles[1].consensus_user: ":                 func(m *rolev1.Manifest) { m.Roles[1].ConsensusUser = "one" },
		"roles[0].requires: \"a b\"":                func(m *rolev1.Manifest) { m.Roles[0].Requires = []string{"a b"} },
		"roles[0].requires: \"one\"":                func(m *rolev1.Manifest) { m.Roles[0].Requires = []string{"one"} },
		"roles[0].requires: \"two\" is there twice": func(m *rolev1.Manifest) { m.Roles[0].Requires = []string{"two", "two"} },
		"roles[0].provides: \"two\"":                func(m *rolev1.Manifest) { m.Roles[0].Provides = []string{"two"} },
		"roles[0].grants[0].name: ":                 func(m *rolev1.Manifest) { m.Roles[0].Grants[0].Name = "" },
		"roles[0].grants[0].parameters":             func(m *rolev1.Manifest) { m.Roles[0].Grants[0].Parameters["path"] = "a\x00" },
		"roles[0].configuration_schema":             func(m *rolev1.Manifest) { m.Roles[0].ConfigurationSchema = "{" },
		"roles[0].ports[0].protocol":                func(m *rolev1.Manifest) { m.Roles[0].Ports[0].Protocol = "sctp" },
		"roles[0].ports[0].number":                  func(m *rolev1.Manifest) { m.Roles[0].Ports[0].Number = 65536 },
		"the manifest has ": func(m *rolev1.Manifest) {
			for _, role := range m.Roles {
				role.ConfigurationSchema = `"` + strings.Repeat("x", 250000) + `"`
			}
		},
		"version: \"1.0.0-xxx":   func(m *rolev1.Manifest) { m.Version = "1.0.0-" + strings.Repeat("x", 59) },
		"roles[1].summary: ":     func(m *rolev1.Manifest) { m.Roles[1].Summary = strings.Repeat("x", 201) },
		"roles[0].requires: 33":  func(m *rolev1.Manifest) { m.Roles[0].Requires = make([]string, 33) },
		"roles[0].provides: 33":  func(m *rolev1.Manifest) { m.Roles[0].Provides = make([]string, 33) },
		"roles[0].grants: 33":    func(m *rolev1.Manifest) { m.Roles[0].Grants = make([]*rolev1.Grant, 33) },
		"roles[0].ports: 65":     func(m *rolev1.Manifest) { m.Roles[0].Ports = make([]*rolev1.Port, 65) },
		"roles[0].ports[0].name": func(m *rolev1.Manifest) { m.Roles[0].Ports[0].Name = strings.Repeat("x", 33) },
		"roles[0].in_split":      func(m *rolev1.Manifest) { m.Roles[0].InSplit = 99 },
		"roles[0].stop_grace: 5": func(m *rolev1.Manifest) { m.Roles[0].StopGrace = durationpb.New(limits.MaxStopGrace + 1) },
		"roles[0].stop_grace: 0": func(m *rolev1.Manifest) { m.Roles[0].StopGrace = durationpb.New(0) },
		"roles[0].stop_grace: -": func(m *rolev1.Manifest) { m.Roles[0].StopGrace = &durationpb.Duration{Seconds: -1, Nanos: 1} },
	} {
		manifest := validManifest()
		spoil(manifest)
		var invalid *ManifestError
		err := CheckManifest(manifest)
		if !errors.As(err, &invalid) || !slices.ContainsFunc(invalid.Problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := CheckManifest(nil); err == nil {
		t.Error("no manifest is accepted")
	}
}

func TestManifestProblemsComeTogether(t *testing.T) {
	t.Parallel()
	manifest := validManifest()
	manifest.Name, manifest.Version, manifest.Roles[1].Name = "", "", ""
	var invalid *ManifestError
	if err := CheckManifest(manifest); !errors.As(err, &invalid) || len(invalid.Problems) != 3 {
		t.Errorf("error %v", err)
	}
}

func TestManifestOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		protocols   []string
		upgradeCore bool
	}{
		{[]string{"reeve.role.v2"}, true},
		{[]string{"reeve.role.v0", "reeve.consensus.v1"}, false},
		{nil, false},
	} {
		manifest := validManifest()
		manifest.Protocols = test.protocols
		var version *VersionError
		if err := CheckManifest(manifest); !errors.As(err, &version) || version.UpgradeCore != test.upgradeCore {
			t.Errorf("%v: %v", test.protocols, err)
		}
	}
}

// Whatever a plugin answers, checking it ends, and an accepted manifest holds nothing that could break a path or a log.
func FuzzManifest(f *testing.F) {
	seed, err := proto.Marshal(validManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var manifest rolev1.Manifest
		if proto.Unmarshal(encoded, &manifest) != nil || CheckManifest(&manifest) != nil {
			return
		}
		for _, role := range manifest.GetRoles() {
			if name := role.GetName(); name == "" || len(name) > 32 || strings.ContainsAny(name, "/._ \n\x00") {
				t.Errorf("role %q", name)
			}
		}
	})
}
