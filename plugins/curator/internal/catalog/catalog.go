package catalog

import (
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Running is the version of a plugin that runs, or nil if none was approved yet.
func Running(plugin *clusterv1.PluginRecord) *clusterv1.PluginVersion {
	if plugin.GetManifest() == nil {
		return nil
	}
	return &clusterv1.PluginVersion{
		Version: plugin.GetVersion(), Digests: plugin.GetDigests(), Manifest: plugin.GetManifest(), Added: plugin.GetAdded(),
	}
}

// Same reports whether two versions are one build, as far as both say: the same manifest, and no platform for which they have different digests.
func Same(a, b *clusterv1.PluginVersion) bool {
	if a == nil || b == nil || a.GetVersion() != b.GetVersion() || !proto.Equal(a.GetManifest(), b.GetManifest()) {
		return false
	}
	for platform, digest := range a.GetDigests() {
		if other, ok := b.GetDigests()[platform]; ok && other != digest {
			return false
		}
	}
	return true
}

// Catalog makes records of plugins.
type Catalog struct {
	// Failed reports whether the version of a plugin that runs did not come to work on the nodes. It is then nothing to go back to: what was there before it
	// stays the previous version. Nil: it always has.
	Failed func(*clusterv1.PluginRecord) bool
}

// Offer returns the record after a version was added that nobody has approved yet; before is nil if the plugin is new. The version runs if it asks for
// nothing that was not decided on; otherwise it waits, in the place of one that waited before.
func (c Catalog) Offer(before *clusterv1.PluginRecord, offered *clusterv1.PluginVersion) *clusterv1.PluginRecord {
	if Same(Running(before), offered) {
		return more(before, offered)
	}
	version := known(before, offered)
	if len(remit.Beyond(version.GetManifest(), before.GetDecided(), before.GetGrants())) == 0 {
		return c.run(before, version, remit.Kept(before.GetManifest(), before.GetGrants(), version.GetManifest()))
	}
	after := begun(before, version)
	after.Waiting = version
	return after
}

// Approve returns the record after a version was added, or had waited, and the owner has approved it with exactly these grants.
func (c Catalog) Approve(before *clusterv1.PluginRecord, approved *clusterv1.PluginVersion, grants []*clusterv1.RoleGrants) *clusterv1.PluginRecord {
	if Same(Running(before), approved) {
		after := more(before, approved)
		after.Grants = ordered(after.GetManifest(), grants)
		after.Decided = remit.Wanted(after.GetManifest())
		return after
	}
	return c.run(before, known(before, approved), grants)
}

// Grant returns the record after the owner has decided what a role of the version that runs is granted in all.
func Grant(before *clusterv1.PluginRecord, grants *clusterv1.RoleGrants) *clusterv1.PluginRecord {
	after := proto.CloneOf(before)
	after.Grants = ordered(after.GetManifest(), append(others(after.GetGrants(), grants.GetRole()), grants))
	wanted := remit.ForRole(remit.Wanted(after.GetManifest()), grants.GetRole())
	after.Decided = ordered(after.GetManifest(), append(others(after.GetDecided(), grants.GetRole()), wanted))
	return after
}

// run puts a version in the place of the one that runs.
func (c Catalog) run(before *clusterv1.PluginRecord, version *clusterv1.PluginVersion, grants []*clusterv1.RoleGrants) *clusterv1.PluginRecord {
	after := begun(before, version)
	if running := Running(before); running != nil && (before.GetPrevious() == nil || c.Failed == nil || !c.Failed(before)) {
		after.Previous = running
	}
	after.Version, after.Digests, after.Manifest, after.Added = version.GetVersion(), version.GetDigests(), version.GetManifest(), version.GetAdded()
	after.Grants, after.Decided = ordered(version.GetManifest(), grants), remit.Wanted(version.GetManifest())
	if waiting := after.GetWaiting(); Same(waiting, version) || !newer(waiting, version) {
		// Whoever approves this one has not waited for an older one.
		after.Waiting = nil
	}
	return after
}

// begun is the record before, or that of a new plugin.
func begun(before *clusterv1.PluginRecord, version *clusterv1.PluginVersion) *clusterv1.PluginRecord {
	if before == nil {
		return &clusterv1.PluginRecord{Name: version.GetManifest().GetName()}
	}
	return proto.CloneOf(before)
}

// more is the record with the digests for further platforms of the version that runs.
func more(before *clusterv1.PluginRecord, offered *clusterv1.PluginVersion) *clusterv1.PluginRecord {
	after := proto.CloneOf(before)
	after.Digests = joined(before.GetDigests(), offered.GetDigests())
	return after
}

// known is the version that is offered, together with what is known of it if it waits already.
func known(before *clusterv1.PluginRecord, offered *clusterv1.PluginVersion) *clusterv1.PluginVersion {
	if !Same(before.GetWaiting(), offered) {
		return offered
	}
	version := proto.CloneOf(before.GetWaiting())
	version.Digests = joined(version.GetDigests(), offered.GetDigests())
	return version
}

func joined(digests, further map[string]string) map[string]string {
	all := maps.Clone(further)
	if all == nil {
		return digests
	}
	maps.Copy(all, digests)
	return all
}

// newer reports whether version a is a later one than b.
func newer(a, b *clusterv1.PluginVersion) bool {
	first, err := semver.StrictNewVersion(a.GetVersion())
	if err != nil {
		return false
	}
	second, err := semver.StrictNewVersion(b.GetVersion())
	return err == nil && first.GreaterThan(second)
}

// ordered is the grants in the order of the roles of a manifest, without those that are empty.
func ordered(manifest *rolev1.Manifest, grants []*clusterv1.RoleGrants) []*clusterv1.RoleGrants {
	var all []*clusterv1.RoleGrants
	for _, role := range manifest.GetRoles() {
		if of := remit.ForRole(grants, role.GetName()); of.GetConsensusUser() != "" || len(of.GetGrants()) > 0 {
			all = append(all, of)
		}
	}
	return all
}

func others(grants []*clusterv1.RoleGrants, role string) []*clusterv1.RoleGrants {
	return slices.DeleteFunc(slices.Clone(grants), func(of *clusterv1.RoleGrants) bool { return of.GetRole() == role })
}
