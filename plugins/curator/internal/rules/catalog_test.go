package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func manifest(name string, roles ...*rolev1.RoleManifest) *rolev1.Manifest {
	return &rolev1.Manifest{Name: name, Version: "1.0.0", Protocols: []string{rules.RoleProtocol}, Roles: roles}
}

func grant(name string, parameters ...string) *rolev1.Grant {
	grant := &rolev1.Grant{Name: name}
	for i := 0; i < len(parameters); i += 2 {
		if grant.Parameters == nil {
			grant.Parameters = make(map[string]string)
		}
		grant.Parameters[parameters[i]] = parameters[i+1]
	}
	return grant
}

// A name is taken by whatever version of another plugin has it: the one that runs, one that waits, and one that nodes go back to.
func TestConflictsOfAllVersions(t *testing.T) {
	catalog := []*clusterv1.PluginRecord{{
		Name: "lamp", Version: "1.1.0", Manifest: manifest("lamp", &rolev1.RoleManifest{Name: "light", ConsensusUser: "now"}),
		Waiting:  &clusterv1.PluginVersion{Version: "1.2.0", Manifest: manifest("lamp", &rolev1.RoleManifest{Name: "light", ConsensusUser: "next"}, &rolev1.RoleManifest{Name: "beam"})},
		Previous: &clusterv1.PluginVersion{Version: "1.0.0", Manifest: manifest("lamp", &rolev1.RoleManifest{Name: "wick", ConsensusUser: "before"})},
	}, {
		Name: "candle", Waiting: &clusterv1.PluginVersion{Version: "0.1.0", Manifest: manifest("candle", &rolev1.RoleManifest{Name: "candle", ConsensusUser: "wax"})},
	}}
	for want, role := range map[string]*rolev1.RoleManifest{
		`the role "light" belongs to plugin "lamp"`:                                                                      {Name: "light"},
		`the role "beam" belongs to plugin "lamp" (version 1.2.0, which waits)`:                                          {Name: "beam"},
		`the role "wick" belongs to plugin "lamp" (version 1.0.0, to which nodes may go back)`:                           {Name: "wick"},
		`the ConsensusUser "now" belongs to role "light" of plugin "lamp"`:                                               {Name: "x", ConsensusUser: "now"},
		`the ConsensusUser "next" belongs to role "light" of plugin "lamp" (version 1.2.0, which waits)`:                 {Name: "x", ConsensusUser: "next"},
		`the ConsensusUser "before" belongs to role "wick" of plugin "lamp" (version 1.0.0, to which nodes may go back)`: {Name: "x", ConsensusUser: "before"},
		`the ConsensusUser "wax" belongs to role "candle" of plugin "candle" (version 0.1.0, which waits)`:               {Name: "x", ConsensusUser: "wax"},
	} {
		got := rules.Conflicts(catalog, manifest("other", role))
		if len(got) != 1 || got[0].String() != want {
			t.Errorf("got %v, want %s", got, want)
		}
		// A plugin is not in its own way.
		if got := rules.Conflicts(catalog[:1], manifest("lamp", role)); len(got) != 0 {
			t.Errorf("its own: %v", got)
		}
	}
	if got := rules.Conflicts(catalog, manifest("other", &rolev1.RoleManifest{Name: "other", ConsensusUser: "other"})); len(got) != 0 {
		t.Errorf("free names: %v", got)
	}
}

func TestGrantsAreChecked(t *testing.T) {
	path := grant("read-path", "path", "/srv")
	for _, test := range []struct {
		grant *rolev1.Grant
		want  string
	}{
		{path, ""},
		{grant("listen", "port", "any"), ""},
		{grant("privileged"), ""},
		{grant("paint"), `[0].name: there is no grant "paint"`},
		{grant(strings.Repeat("p", 65)), `[0].name: "pppp`},
		{grant("listen"), `[0].parameters["port"]: is missing`},
		{grant("listen", "port", "0"), `[0].parameters["port"]: "0" is not a port`},
		{grant("listen", "port", "80", "more", "x"), `[0].parameters["more"]: the grant "listen" has no such parameter`},
		{grant("read-path", "path", "/srv/../etc"), `[0].parameters["path"]: "/srv/../etc" is not an absolute and clean path`},
		{grant("read-path", "path", "/srv\x1b[2J"), `[0].parameters["path"]: it has 8 bytes, and must be one line`},
		{grant("capability", "name", "sys-admin"), `[0].parameters["name"]: "sys-admin" cannot be granted`},
		{grant("limit"), "[0].parameters: it bounds nothing"},
	} {
		role := &rolev1.RoleManifest{Name: "light", Grants: []*rolev1.Grant{test.grant}}
		problems := rules.Manifest("m", manifest("lamp", role))
		if test.want == "" && len(problems) != 0 || test.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].String(), "m.roles[0].grants"+test.want)) {
			t.Errorf("%v in a manifest: %v, want %s", test.grant, problems, test.want)
		}
		// And where it is granted.
		wants := &rolev1.RoleManifest{Name: "light", Grants: []*rolev1.Grant{{Name: test.grant.Name}}}
		problems = rules.RoleGrants("g", manifest("lamp", wants), &clusterv1.RoleGrants{Role: "light", Grants: []*rolev1.Grant{test.grant}})
		if test.want == "" && len(problems) != 0 || test.want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].String(), "g.grants"+test.want)) {
			t.Errorf("%v granted: %v, want %s", test.grant, problems, test.want)
		}
	}
	for group, want := range map[string]string{"processes": "[]", "network": "[]", "sleep": `[m.roles[0].gives_up[0]: "sleep" cannot be given up: network, processes can]`} {
		got := rules.Manifest("m", manifest("lamp", &rolev1.RoleManifest{Name: "light", GivesUp: []string{group}}))
		if fmt.Sprint([]rules.Problem(got)) != want {
			t.Errorf("giving up %s: %v", group, got)
		}
	}
}

// Who must not be lost is granted all that it asks for.
func TestWithheld(t *testing.T) {
	listen, limit := grant("listen", "port", "any"), grant("limit", "memory", "2Gi")
	role := &rolev1.RoleManifest{Name: "api", ConsensusUser: "api", Provides: []string{"reeve.cluster.v1"}, Grants: []*rolev1.Grant{listen, limit}}
	for _, test := range []struct {
		role   *rolev1.RoleManifest
		grants *clusterv1.RoleGrants
		want   []string
	}{
		{role, &clusterv1.RoleGrants{Role: "api", ConsensusUser: "api", Grants: []*rolev1.Grant{limit, listen}}, nil},
		{role, &clusterv1.RoleGrants{Role: "api", Grants: []*rolev1.Grant{limit, listen}}, []string{"its ConsensusUser"}},
		{role, &clusterv1.RoleGrants{Role: "api", ConsensusUser: "api", Grants: []*rolev1.Grant{limit, grant("listen", "port", "80")}}, []string{"listen"}},
		{role, nil, []string{"its ConsensusUser", "listen", "limit"}},
		{&rolev1.RoleManifest{Name: "api", ConsensusUser: "api", Provides: []string{"example.v1"}, Grants: []*rolev1.Grant{listen}}, nil, nil},
	} {
		record := &clusterv1.PluginRecord{Name: "curator", Manifest: manifest("curator", test.role)}
		if test.grants != nil {
			record.Grants = append(record.Grants, test.grants)
		}
		var got []string
		for _, withheld := range rules.WithheldOf(record) {
			got = append(got, withheld.What)
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("with %v: %v, want %v", test.grants, got, test.want)
		}
	}
}
