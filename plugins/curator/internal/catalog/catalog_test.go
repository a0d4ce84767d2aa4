package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/catalog"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

const platform = "linux/amd64"

func read(path string) *rolev1.Grant {
	return &rolev1.Grant{Name: remit.ReadPath, Parameters: map[string]string{"path": path}}
}

func listen(port string) *rolev1.Grant {
	return &rolev1.Grant{Name: remit.Listen, Parameters: map[string]string{"port": port}}
}

// version is one of the plugin "lamp", whose role "light" wants a ConsensusUser, or none, and grants.
func version(number, user string, grants ...*rolev1.Grant) *clusterv1.PluginVersion {
	return &clusterv1.PluginVersion{
		Version: number, Digests: map[string]string{platform: "sha256:" + number},
		Manifest: &rolev1.Manifest{Name: "lamp", Version: number, Roles: []*rolev1.RoleManifest{{Name: "light", ConsensusUser: user, Grants: grants}}},
	}
}

func granted(user string, grants ...*rolev1.Grant) []*clusterv1.RoleGrants {
	return []*clusterv1.RoleGrants{{Role: "light", ConsensusUser: user, Grants: grants}}
}

// running is the record of a plugin of which a version runs with some grants.
func running(of *clusterv1.PluginVersion, grants []*clusterv1.RoleGrants) *clusterv1.PluginRecord {
	return &clusterv1.PluginRecord{
		Name: "lamp", Version: of.Version, Digests: of.Digests, Manifest: of.Manifest, Grants: grants, Decided: remit.Wanted(of.Manifest), Added: of.Added,
	}
}

func want(t *testing.T, what string, got, want *clusterv1.PluginRecord) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestOfferOfTheFirstVersion(t *testing.T) {
	modest := version("1.0.0", "")
	want(t, "it asks for nothing", catalog.Catalog{}.Offer(nil, modest), running(modest, nil))
	for what, greedy := range map[string]*clusterv1.PluginVersion{"it asks for a grant": version("1.0.0", "", read("/a")), "it asks for a user": version("1.0.0", "beam")} {
		waits := catalog.Catalog{}.Offer(nil, greedy)
		want(t, what, waits, &clusterv1.PluginRecord{Name: "lamp", Waiting: greedy})
		want(t, what+", and the next one waits in its place", catalog.Catalog{}.Offer(waits, version("1.1.0", "beam", read("/a"))),
			&clusterv1.PluginRecord{Name: "lamp", Waiting: version("1.1.0", "beam", read("/a"))})
		want(t, what+", and the next one asks for nothing", catalog.Catalog{}.Offer(waits, version("1.1.0", "")), running(version("1.1.0", ""), nil))
	}
}

func TestOfferOfTheNextVersion(t *testing.T) {
	first := version("1.0.0", "beam", read("/a"), read("/b"))
	// What the owner granted is not all that was asked for, and partly something else.
	grants := granted("beam", read("/a"), read("/own"))
	before := running(first, grants)
	for _, test := range []struct {
		what    string
		offered *clusterv1.PluginVersion
		runs    bool
		granted []*clusterv1.RoleGrants
	}{
		{"the same", version("1.1.0", "beam", read("/a"), read("/b")), true, grants},
		{"what is granted otherwise", version("1.1.0", "beam", read("/own")), true, granted("beam", read("/own"))},
		{"less", version("1.1.0", "beam", read("/b")), true, granted("beam", read("/own"))},
		{"no user", version("1.1.0", "", read("/a")), true, granted("", read("/a"), read("/own"))},
		{"nothing", version("1.1.0", ""), true, nil},
		{"another path", version("1.1.0", "beam", read("/c")), false, nil},
		{"another user", version("1.1.0", "glow", read("/a")), false, nil},
		{"a grant of another name", version("1.1.0", "beam", listen("any")), false, nil},
	} {
		kept := proto.CloneOf(before)
		after := catalog.Catalog{}.Offer(before, test.offered)
		if want(t, "the record before", before, kept); !test.runs {
			kept.Waiting = test.offered
			want(t, test.what, after, kept)
			continue
		}
		next := running(test.offered, test.granted)
		next.Previous = first
		want(t, test.what, after, next)
	}
}

// What a version did without has to be approved again.
func TestLessAndMoreAgain(t *testing.T) {
	record := running(version("1.0.0", "", read("/a")), granted("", read("/a")))
	record = catalog.Catalog{}.Offer(record, version("1.1.0", ""))
	if record = (catalog.Catalog{}).Offer(record, version("1.2.0", "", read("/a"))); record.GetVersion() != "1.1.0" || record.GetWaiting().GetVersion() != "1.2.0" {
		t.Errorf("%v", record)
	}
}

func TestBuildsAndPlatforms(t *testing.T) {
	first := version("1.0.0", "", read("/a"))
	before := running(first, granted("", read("/a")))
	arm := version("1.0.0", "", read("/a"))
	arm.Digests = map[string]string{"linux/arm64": "sha256:arm"}
	both := map[string]string{platform: "sha256:1.0.0", "linux/arm64": "sha256:arm"}
	joined := proto.CloneOf(before)
	joined.Digests = both
	want(t, "another platform of what runs", catalog.Catalog{}.Offer(before, arm), joined)
	want(t, "the same again", catalog.Catalog{}.Offer(joined, first), joined)

	rebuilt := version("1.0.0", "", read("/a"))
	rebuilt.Digests[platform] = "sha256:rebuilt"
	next := running(rebuilt, granted("", read("/a")))
	next.Previous = first
	want(t, "another build", catalog.Catalog{}.Offer(before, rebuilt), next)

	greedy := version("1.0.0", "", read("/a"), read("/b"))
	waits := proto.CloneOf(before)
	waits.Waiting = greedy
	want(t, "another manifest under the same version", catalog.Catalog{}.Offer(before, greedy), waits)
	arm = proto.CloneOf(greedy)
	arm.Digests = map[string]string{"linux/arm64": "sha256:arm"}
	waits.Waiting = proto.CloneOf(greedy)
	waits.Waiting.Digests["linux/arm64"] = "sha256:arm"
	waits.Waiting.Digests[platform] = "sha256:1.0.0"
	want(t, "another platform of what waits", catalog.Catalog{}.Offer(catalog.Catalog{}.Offer(before, greedy), arm), waits)
}

func TestApprove(t *testing.T) {
	first, second := version("1.0.0", "", read("/a")), version("2.0.0", "beam", read("/a"), read("/b"))
	before := catalog.Catalog{}.Offer(running(first, granted("", read("/a"))), second)
	next := running(second, granted("", read("/b")))
	next.Previous = first
	want(t, "what waits, with exactly what is granted", catalog.Catalog{}.Approve(before, second, granted("", read("/b"))), next)

	older, newer := version("1.5.0", "", listen("1")), version("3.0.0", "", listen("1"))
	after := catalog.Catalog{}.Approve(before, older, nil)
	if after.GetVersion() != "1.5.0" || after.GetWaiting().GetVersion() != "2.0.0" || len(after.GetGrants()) != 0 {
		t.Errorf("a version that is not newer than the one that waits: %v", after)
	}
	if after = (catalog.Catalog{}).Approve(before, newer, nil); after.GetVersion() != "3.0.0" || after.GetWaiting() != nil {
		t.Errorf("a version that is newer than the one that waits: %v", after)
	}
	again := catalog.Catalog{}.Approve(next, second, granted("beam"))
	if again.GetPrevious().GetVersion() != "1.0.0" || len(again.GetGrants()) != 1 || again.GetGrants()[0].GetConsensusUser() != "beam" {
		t.Errorf("what runs already, with other grants: %v", again)
	}
}

// Nodes do not go back to what they have just gone back from.
func TestAVersionThatFailedIsNotPrevious(t *testing.T) {
	first, second, third := version("1.0.0", ""), version("1.1.0", ""), version("1.2.0", "")
	record := catalog.Catalog{}.Offer(running(first, nil), second)
	for failed, previous := range map[bool]string{false: "1.1.0", true: "1.0.0"} {
		after := catalog.Catalog{Failed: func(*clusterv1.PluginRecord) bool { return failed }}.Offer(record, third)
		if after.GetPrevious().GetVersion() != previous {
			t.Errorf("failed %t: %v", failed, after)
		}
	}
	after := catalog.Catalog{Failed: func(*clusterv1.PluginRecord) bool { return true }}.Offer(running(first, nil), second)
	if after.GetPrevious().GetVersion() != "1.0.0" {
		t.Errorf("the only one there was: %v", after)
	}
}

func TestGrant(t *testing.T) {
	first := version("1.0.0", "beam", read("/a"))
	before := running(first, granted("beam", read("/a")))
	before.Decided = nil // as a curator wrote it that did not know of the field
	after := catalog.Grant(before, granted("", read("/own"))[0])
	want(t, "other grants", after, running(first, granted("", read("/own"))))
	want(t, "none", catalog.Grant(before, &clusterv1.RoleGrants{Role: "light"}), running(first, nil))
	// What is withheld is not asked for again.
	if next := (catalog.Catalog{}).Offer(after, version("1.1.0", "beam", read("/a"))); next.GetVersion() != "1.1.0" || next.GetGrants()[0].GetConsensusUser() != "" {
		t.Errorf("the next version: %v", next)
	}
}
