package rules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// MaxReports is how many reports of the conformance suite one request brings in.
const MaxReports = maxPlatforms

// Unproven is an executable without a report that says that it conforms, where the policy demands one.
type Unproven struct {
	Plugin, Version, Platform, Digest string
	// Failed says that there is a report, and what it says is that the plugin does not conform.
	Failed bool
}

func (u Unproven) String() string {
	why := "has no report of the conformance suite"
	if u.Failed {
		why = "has a report which says that it does not conform"
	}
	return fmt.Sprintf("plugin %s %s for %s, %s, %s", u.Plugin, u.Version, u.Platform, u.Digest, why)
}

// Proves reports whether the catalog has a report on an executable which says that it conforms.
func Proves(plugin *clusterv1.PluginRecord, digest string) bool {
	return resultOf(plugin, digest) == clusterv1.ConformanceResult_CONFORMANCE_RESULT_PASSED
}

func resultOf(plugin *clusterv1.PluginRecord, digest string) clusterv1.ConformanceResult {
	for _, report := range plugin.GetReports() {
		if report.GetDigest() == digest {
			return report.GetResult()
		}
	}
	return clusterv1.ConformanceResult_CONFORMANCE_RESULT_UNSPECIFIED
}

// ReportsRequired reports whether a policy demands reports of the conformance suite.
func ReportsRequired(policy *clusterv1.ClusterPolicy) bool {
	return policy.GetConformance() == clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED
}

// IntroducedUnproven returns the executables without a report that a change brings in where the policy demands one: into the catalog, into the place of the version that
// runs, or into use by a node. What was so before does not stand in the way of changes that do not make it worse.
func IntroducedUnproven(before, after *store.State) []Unproven {
	if !ReportsRequired(after.Demands()) {
		return nil
	}
	var known []Unproven
	if ReportsRequired(before.Demands()) {
		known = inUse(before)
	}
	found := slices.DeleteFunc(inUse(after), func(u Unproven) bool { return slices.ContainsFunc(known, u.same) })
	for _, name := range after.PluginNames() {
		plugin, was := after.Plugins[name], before.Plugins[name]
		fresh := newDigests(was.GetDigests(), plugin.GetDigests())
		found = append(found, unproven(plugin, plugin.GetVersion(), fresh)...)
		waiting := newDigests(was.GetWaiting().GetDigests(), plugin.GetWaiting().GetDigests())
		found = append(found, unproven(plugin, plugin.GetWaiting().GetVersion(), waiting)...)
	}
	slices.SortFunc(found, func(a, b Unproven) int { return slices.Compare(a.order(), b.order()) })
	return slices.Compact(found)
}

// same reports whether another one is about the same executable.
func (u Unproven) same(other Unproven) bool { return slices.Equal(u.order(), other.order()) }

func (u Unproven) order() []string { return []string{u.Plugin, u.Version, u.Platform, u.Digest} }

// inUse are the executables without a report of the versions that run of the plugins of which nodes have roles.
func inUse(state *store.State) []Unproven {
	used := make(map[string]bool)
	for _, node := range state.Nodes {
		if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			continue
		}
		for _, assignment := range node.GetRoles() {
			if _, plugin := state.Role(assignment.GetRole()); plugin != nil {
				used[plugin.GetName()] = true
			}
		}
	}
	var found []Unproven
	for _, name := range slices.Sorted(maps.Keys(used)) {
		found = append(found, unproven(state.Plugins[name], state.Plugins[name].GetVersion(), state.Plugins[name].GetDigests())...)
	}
	return found
}

func unproven(plugin *clusterv1.PluginRecord, version string, digests map[string]string) []Unproven {
	var found []Unproven
	for _, platform := range slices.Sorted(maps.Keys(digests)) {
		if !Proves(plugin, digests[platform]) {
			failed := resultOf(plugin, digests[platform]) != clusterv1.ConformanceResult_CONFORMANCE_RESULT_UNSPECIFIED
			found = append(found, Unproven{Plugin: plugin.GetName(), Version: version, Platform: platform, Digest: digests[platform], Failed: failed})
		}
	}
	return found
}

// newDigests are those that were not there before.
func newDigests(before, after map[string]string) map[string]string {
	fresh := maps.Clone(after)
	maps.DeleteFunc(fresh, func(platform, digest string) bool { return before[platform] == digest })
	return fresh
}
