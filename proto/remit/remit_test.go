package remit_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

func grant(name string, pairs ...string) *rolev1.Grant {
	g := &rolev1.Grant{Name: name}
	for i := 0; i < len(pairs); i += 2 {
		if g.Parameters == nil {
			g.Parameters = make(map[string]string)
		}
		g.Parameters[pairs[i]] = pairs[i+1]
	}
	return g
}

func TestOf(t *testing.T) {
	got, err := remit.Of([]*rolev1.Grant{
		grant(remit.Listen, "port", "7443"), grant(remit.Listen, "port", "80"), grant(remit.Connect, "port", "any"), grant(remit.Connect, "port", "1"),
		grant(remit.ReadPath, "path", "/etc/ssl"), grant(remit.WritePath, "path", "/srv/b"), grant(remit.WritePath, "path", "/srv/a"),
		grant(remit.Limit, "memory", "64Mi", "cpu-weight", "50"), grant(remit.SetHostname), grant(remit.Capability, "name", "net-bind-service"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := remit.Remit{
		Listen: remit.Ports{Numbers: []uint16{80, 7443}}, Connect: remit.Ports{Any: true}, Read: []string{"/etc/ssl"}, Write: []string{"/srv/a", "/srv/b"},
		Memory: 64 << 20, CPUWeight: 50, HostCalls: []string{remit.SetHostname}, Capabilities: []string{"net-bind-service"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

func TestTier(t *testing.T) {
	for _, c := range []struct {
		grants []*rolev1.Grant
		want   clusterv1.Tier
	}{
		{nil, clusterv1.Tier_TIER_CONFINED},
		{[]*rolev1.Grant{grant(remit.Listen, "port", "1"), grant(remit.Limit, "processes", "9")}, clusterv1.Tier_TIER_CONFINED},
		{[]*rolev1.Grant{grant(remit.ReplaceFile, "path", "/etc/hosts")}, clusterv1.Tier_TIER_GRANTED},
		{[]*rolev1.Grant{grant(remit.ReadPath, "path", "/etc/hosts")}, clusterv1.Tier_TIER_GRANTED},
		{[]*rolev1.Grant{grant(remit.Capability, "name", "sys-time")}, clusterv1.Tier_TIER_GRANTED},
		{[]*rolev1.Grant{grant(remit.Privileged), grant(remit.SetHostname)}, clusterv1.Tier_TIER_PRIVILEGED},
	} {
		got, err := remit.Of(c.grants)
		if err != nil || got.Tier() != c.want {
			t.Errorf("%v: %v %v, want %v", c.grants, got.Tier(), err, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		grant *rolev1.Grant
		want  string
	}{
		{grant("frobnicate"), "no grant"},
		{grant(remit.Privileged, "really", "yes"), "no such parameter"},
		{grant(remit.Listen), "is missing"},
		{grant(remit.Listen, "port", "0"), "not a port"},
		{grant(remit.Listen, "port", "+1"), "not a port"},
		{grant(remit.Listen, "port", "65536"), "not a port"},
		{grant(remit.Connect, "port", ""), "not a port"},
		{grant(remit.ReadPath, "path", "etc"), "not an absolute"},
		{grant(remit.WritePath, "path", "/a/../b"), "not an absolute"},
		{grant(remit.ExecutePath, "path", "/"), "not an absolute"},
		{grant(remit.Capability, "name", "sys-admin"), "cannot be granted"},
		{grant(remit.Limit), "bounds nothing"},
		{grant(remit.Limit, "memory", "-1"), "not a positive"},
		{grant(remit.Limit, "memory", "9999999999999Gi"), "not a positive"},
		{grant(remit.Limit, "cpu-weight", "10001"), "from 1 to 10000"},
		{grant(remit.SetHostname, "path", "x"), "not an absolute"},
	} {
		_, err := remit.Of([]*rolev1.Grant{grant(remit.SetHostname), c.grant})
		var wrong *remit.Error
		if err == nil || !errors.As(err, &wrong) || wrong.Index != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q of grants[1]", c.grant, err, c.want)
		}
	}
	if !slices.IsSorted(remit.Known()) || !slices.IsSorted(remit.Grantable()) {
		t.Error("the lists are not sorted")
	}
}

func TestBeyond(t *testing.T) {
	manifest := func(user string, grants ...*rolev1.Grant) *rolev1.Manifest {
		return &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "plain"}, {Name: "r", ConsensusUser: user, Grants: grants}}}
	}
	hosts, other := grant(remit.ReplaceFile, "path", "/etc/hosts"), grant(remit.ReplaceFile, "path", "/srv/hosts")
	first := manifest("u", hosts)
	if more := remit.Beyond(first, nil, nil); len(more) != 1 || more[0].GetConsensusUser() != "u" || len(more[0].GetGrants()) != 1 {
		t.Errorf("a first version asks for %v", more)
	}
	// It was granted another path than it asked for, and asks for the same again.
	decided, granted := remit.Wanted(first), []*clusterv1.RoleGrants{{Role: "r", ConsensusUser: "u", Grants: []*rolev1.Grant{other}}}
	if more := remit.Beyond(first, decided, granted); len(more) != 0 {
		t.Errorf("what was decided is new: %v", more)
	}
	if more := remit.Beyond(manifest("u", other), decided, granted); len(more) != 0 {
		t.Errorf("what is granted is new: %v", more)
	}
	if more := remit.Beyond(manifest("u"), decided, granted); len(more) != 0 {
		t.Errorf("less is more: %v", more)
	}
	more := remit.Beyond(manifest("v", hosts, grant(remit.Privileged)), decided, granted)
	if len(more) != 1 || more[0].GetConsensusUser() != "v" || len(more[0].GetGrants()) != 1 || more[0].GetGrants()[0].GetName() != remit.Privileged {
		t.Errorf("the new version asks for %v", more)
	}
}

// Whatever is asked for: it is refused, or stays what it is when it is read again.
func FuzzOf(f *testing.F) {
	f.Add("limit", "memory", "64Mi")
	f.Add("listen", "port", "any")
	f.Add("read-path", "path", "/a")
	f.Fuzz(func(t *testing.T, name, parameter, value string) {
		first, err := remit.Of([]*rolev1.Grant{grant(name, parameter, value)})
		again, errAgain := remit.Of([]*rolev1.Grant{grant(name, parameter, value), grant(name, parameter, value)})
		if (err == nil) != (errAgain == nil) || err == nil && !reflect.DeepEqual(first, again) {
			t.Errorf("%+v %v, and twice %+v %v", first, err, again, errAgain)
		}
	})
}

// What the owner chose stays, with newer versions and on the way back; what only the version that runs asks for goes with it.
func TestKept(t *testing.T) {
	manifest := func(user string, grants ...*rolev1.Grant) *rolev1.Manifest {
		return &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "a", ConsensusUser: user, Grants: grants}, {Name: "quiet"}}}
	}
	standard, own := grant(remit.ReplaceFile, "path", "/etc/hosts"), grant(remit.ReplaceFile, "path", "/srv/hosts")
	other, port := grant(remit.ReplaceFile, "path", "/etc/other"), grant(remit.Listen, "port", "80")
	tests := map[string]struct {
		runs, other   *rolev1.Manifest
		user, want    string
		granted, kept []*rolev1.Grant
	}{
		"asked for by both":        {manifest("a", standard), manifest("a", standard), "a", "a", []*rolev1.Grant{standard}, []*rolev1.Grant{standard}},
		"the owner's own":          {manifest("", standard), manifest("", standard), "", "", []*rolev1.Grant{own}, []*rolev1.Grant{own}},
		"the owner's, new default": {manifest("", standard), manifest("", other), "", "", []*rolev1.Grant{own}, []*rolev1.Grant{own}},
		"only the one that runs":   {manifest("", standard, port), manifest("", standard), "", "", []*rolev1.Grant{standard, port}, []*rolev1.Grant{standard}},
		"another default":          {manifest("", standard), manifest("", other), "", "", []*rolev1.Grant{standard}, nil},
		"withdrawn":                {manifest("a", standard), manifest("a", standard), "", "", nil, nil},
		"another user":             {manifest("a", port), manifest("b", port), "a", "", []*rolev1.Grant{port}, []*rolev1.Grant{port}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		c := tests[name]
		t.Run(name, func(t *testing.T) {
			granted := []*clusterv1.RoleGrants{{Role: "a", ConsensusUser: c.user, Grants: c.granted}}
			want := []*clusterv1.RoleGrants{{Role: "a", ConsensusUser: c.want, Grants: c.kept}}
			if got := remit.Kept(c.runs, granted, c.other); !slices.EqualFunc(got, want, func(a, b *clusterv1.RoleGrants) bool { return proto.Equal(a, b) }) {
				t.Errorf("kept %v, want %v", got, want)
			}
		})
	}
}
