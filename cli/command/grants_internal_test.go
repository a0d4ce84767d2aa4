package command

import (
	"fmt"
	"slices"
	"testing"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Another version of a plugin does not come to more power by wanting it.
func TestGrantsAreKept(t *testing.T) {
	power := func(name, path string) *rolev1.Grant {
		return &rolev1.Grant{Name: name, Parameters: map[string]string{"path": path}}
	}
	next := &rolev1.Manifest{Name: "p", Roles: []*rolev1.RoleManifest{
		{Name: "known", Grants: []*rolev1.Grant{power("replace-file", "/etc/hosts"), power("set-hostname", "/etc/hostname")}},
		{Name: "new", Grants: []*rolev1.Grant{power("replace-file", "/etc/motd")}},
	}}
	former := &clusterv1.PluginRecord{
		Name:     "p",
		Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "known"}, {Name: "gone"}}},
		Grants: []*clusterv1.RoleGrants{
			{Role: "known", Grants: []*rolev1.Grant{power("replace-file", "/d/hosts"), power("not-wanted-now", "/x")}},
			{Role: "gone", Grants: []*rolev1.Grant{power("replace-file", "/y")}},
		},
	}
	for name, test := range map[string]struct {
		former         *clusterv1.PluginRecord
		flags          []string
		want, withheld []string
	}{
		"new plugin":      {nil, nil, []string{"known:replace-file=/etc/hosts", "known:set-hostname=/etc/hostname", "new:replace-file=/etc/motd"}, nil},
		"another version": {former, nil, []string{"known:replace-file=/d/hosts", "new:replace-file=/etc/motd"}, []string{"known:set-hostname"}},
		"as it asks for it": {former, []string{"known:set-hostname"},
			[]string{"known:replace-file=/d/hosts", "known:set-hostname=/etc/hostname", "new:replace-file=/etc/motd"}, nil},
		"with a parameter": {former, []string{"known:replace-file:path=/z", "known:set-hostname:path=/h"},
			[]string{"known:replace-file=/z", "known:set-hostname=/h", "new:replace-file=/etc/motd"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			overrides, err := parseGrants(test.flags)
			if err != nil {
				t.Fatal(err)
			}
			grants, withheld, err := grantsFor(next, test.former, overrides)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, of := range grants {
				for _, grant := range of.GetGrants() {
					got = append(got, fmt.Sprintf("%s:%s=%s", of.GetRole(), grant.GetName(), grant.GetParameters()["path"]))
				}
			}
			if !slices.Equal(got, test.want) || !slices.Equal(withheld, test.withheld) {
				t.Errorf("granted %v, withheld %v; want %v, %v", got, withheld, test.want, test.withheld)
			}
		})
	}
	if next.GetRoles()[0].GetGrants()[0].GetParameters()["path"] != "/etc/hosts" || former.GetGrants()[0].GetGrants()[0].GetParameters()["path"] != "/d/hosts" {
		t.Error("what was asked or granted was changed")
	}
	for _, wrong := range []string{"", "role", ":grant", "role:", "role:grant:", "role:grant:key", "role:grant:=value"} {
		if _, err := parseGrants([]string{wrong}); err == nil {
			t.Errorf("--grant %q is taken", wrong)
		}
	}
}
