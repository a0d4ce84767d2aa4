package command

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func asks(name, path string) *rolev1.Grant {
	return &rolev1.Grant{Name: name, Parameters: map[string]string{"path": path}}
}

// What was decided about a role stays as it was, whatever another version asks for again; what is new is granted with the version.
func TestGrantsFor(t *testing.T) {
	next := &rolev1.Manifest{Name: "p", Roles: []*rolev1.RoleManifest{
		{Name: "known", ConsensusUser: "known", Grants: []*rolev1.Grant{
			asks("replace-file", "/etc/hosts"), asks("set-hostname", "/etc/hostname"), asks("read-path", "/a"), asks("read-path", "/b"),
		}},
		{Name: "new", ConsensusUser: "new", Grants: []*rolev1.Grant{asks("replace-file", "/etc/motd")}},
	}}
	record := &clusterv1.PluginRecord{
		Name: "p", Version: "1",
		Decided: []*clusterv1.RoleGrants{
			{Role: "known", ConsensusUser: "known", Grants: []*rolev1.Grant{asks("replace-file", "/etc/hosts"), asks("set-hostname", "/etc/hostname"), asks("read-path", "/a"), asks("write-path", "/x")}},
			{Role: "gone", Grants: []*rolev1.Grant{asks("replace-file", "/y")}},
		},
		Grants: []*clusterv1.RoleGrants{
			{Role: "known", Grants: []*rolev1.Grant{asks("replace-file", "/d/hosts"), asks("read-path", "/a"), asks("write-path", "/x")}},
			{Role: "gone", Grants: []*rolev1.Grant{asks("replace-file", "/y")}},
		},
	}
	usual := []string{"known:replace-file=/d/hosts", "known:read-path=/a", "known:read-path=/b", "new!new", "new:replace-file=/etc/motd"}
	tests := map[string]struct {
		record         *clusterv1.PluginRecord
		grant, without []string
		want           []string
	}{
		"a new plugin": {nil, nil, nil, []string{"known!known", "known:replace-file=/etc/hosts", "known:set-hostname=/etc/hostname", "known:read-path=/a", "known:read-path=/b",
			"new!new", "new:replace-file=/etc/motd"}},
		"what was refused stays refused": {record, nil, nil, usual},
		"what was refused is granted": {record, []string{"known:set-hostname", "known:consensus-user"}, nil,
			[]string{"known!known", "known:replace-file=/d/hosts", "known:set-hostname=/etc/hostname", "known:read-path=/a", "known:read-path=/b", "new!new", "new:replace-file=/etc/motd"}},
		"a parameter of the owner's": {record, []string{"known:replace-file:path=/z", "known:set-hostname:path=/h"}, nil,
			[]string{"known:replace-file=/z", "known:set-hostname=/h", "known:read-path=/a", "known:read-path=/b", "new!new", "new:replace-file=/etc/motd"}},
		"one of two of a name": {record, nil, []string{"known:read-path:path=/b"},
			[]string{"known:replace-file=/d/hosts", "known:read-path=/a", "new!new", "new:replace-file=/etc/motd"}},
		"all of a name, and a user": {record, nil, []string{"known:read-path", "new:consensus-user", "known:replace-file:path=/d/hosts"}, []string{"new:replace-file=/etc/motd"}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			granted, err := parsePowers("--grant ", test.grant)
			if err != nil {
				t.Fatal(err)
			}
			withheld, err := parsePowers("--without ", test.without)
			if err != nil {
				t.Fatal(err)
			}
			grants, err := grantsFor(next, test.record, granted, withheld)
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(grants); !slices.Equal(got, test.want) {
				t.Errorf("granted %v, want %v", got, test.want)
			}
		})
	}
	if next.GetRoles()[0].GetGrants()[0].GetParameters()["path"] != "/etc/hosts" || record.GetGrants()[0].GetGrants()[0].GetParameters()["path"] != "/d/hosts" {
		t.Error("what was asked or granted was changed")
	}
	for _, wrong := range []string{"known:nothing", "other:replace-file", "known:read-path:path=/c", "new:set-hostname", "known:consensus-user:a=b"} {
		powers, err := parsePowers("", []string{wrong})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := grantsFor(next, record, powers, nil); err == nil {
			t.Errorf("--grant %s is taken", wrong)
		}
		if _, err := grantsFor(next, record, nil, powers); err == nil {
			t.Errorf("--without %s is taken", wrong)
		}
	}
}

func texts(of []*clusterv1.RoleGrants) []string {
	var texts []string
	for _, grants := range of {
		if user := grants.GetConsensusUser(); user != "" {
			texts = append(texts, grants.GetRole()+"!"+user)
		}
		for _, grant := range grants.GetGrants() {
			texts = append(texts, fmt.Sprintf("%s:%s=%s", grants.GetRole(), grant.GetName(), grant.GetParameters()["path"]))
		}
	}
	return texts
}

func TestPowersAreNamed(t *testing.T) {
	for _, wrong := range []string{"", "role", ":grant", "role:", "role:grant:", "role:grant:key", "role:grant:=value"} {
		if _, err := parsePowers("--grant ", []string{wrong}); err == nil {
			t.Errorf("--grant %q is taken", wrong)
		}
	}
	powers, err := parsePowers("", []string{"r:g", "r:g:k=v=w:x"})
	if err != nil || powers[0].text() != "r:g" || powers[1].text() != "r:g:k=v=w:x" || powers[1].value != "v=w:x" {
		t.Errorf("%+v %v", powers, err)
	}
}
