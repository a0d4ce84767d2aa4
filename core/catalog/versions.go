package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/event"
)

// complete is what should run, with what there is to go back to of each role, and without what the owner's policy or the disk forbids.
func (c Chooser) complete(phase seal.Phase, status membership.Status, contacted bool, problem *membership.Problem, full map[string]string) roles.Desired {
	desired := choose(c.Known, phase, status, contacted, problem)
	before := choose(c.Known.before(), phase, status, contacted, problem)
	for n := range desired.Roles {
		d, previous := &desired.Roles[n], before.Roles[n]
		role := d.Assignment.GetRole()
		if previous.Plugin != nil {
			if d.Plugin == nil {
				// The present version does not offer the role, which is for who runs it to say.
				d.Plugin = c.Known.named(previous.Plugin.GetName())
			}
			c.restrict(&previous, full[role])
			d.Previous = &previous
		}
		c.restrict(d, full[role])
	}
	return desired
}

// restrict holds a role back that the policy forbids, and has one fail that fills the disk.
func (c Chooser) restrict(d *roles.DesiredRole, fills string) {
	if d.Failed == "" {
		d.Failed = fills
	}
	if d.Hold != "" || d.Plugin == nil || c.Missing == nil || c.Known.Policy.GetIsolation() != clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED {
		return
	}
	role := d.Assignment.GetRole()
	if guarded(store.ManifestOf(d.Plugin, role)) {
		return // it is trusted anyway, and without it nobody could change the policy
	}
	if missing := c.Missing(plugin.Spec{Role: role, Plugin: d.Plugin}); len(missing) > 0 {
		d.Hold = forbidden(missing)
	}
}

// maxForbidden is how long it may take to say what is missing, in bytes.
const maxForbidden = 1 << 10

func forbidden(missing []*clusterv1.Missing) string {
	parts := make([]string, 0, len(missing))
	for _, part := range missing {
		text := part.GetName()
		if part.GetReason() != "" {
			text += " (" + part.GetReason() + ")"
		}
		parts = append(parts, text)
	}
	return limits.Cut(fmt.Sprintf("the cluster's policy demands a sandbox that this node cannot enforce: %s", strings.Join(parts, ", ")), maxForbidden)
}

// guarded reports whether a role is one of those without which there is no cluster.
func guarded(manifest *rolev1.RoleManifest) bool {
	return Provides(manifest, roles.CapabilityConsensus) || Provides(manifest, roles.CapabilityCluster)
}

// Provides reports whether a role provides a capability.
func Provides(manifest *rolev1.RoleManifest, capability string) bool {
	return slices.Contains(manifest.GetProvides(), capability)
}

// Trusted returns whether an instance is of a role without which there is no cluster, whichever version of it runs.
func Trusted(desired *event.Value[roles.Desired]) func(roles.Instance) bool {
	return func(instance roles.Instance) bool {
		if instance.Remit != nil && guarded(instance.Remit.Manifest) {
			return true
		}
		now, _ := desired.Get()
		role := instance.Status.GetRole()
		return slices.ContainsFunc(now.Roles, func(d roles.DesiredRole) bool {
			return d.Assignment.GetRole() == role && (guarded(store.ManifestOf(d.Plugin, role)) || d.Previous != nil && guarded(store.ManifestOf(d.Previous.Plugin, role)))
		})
	}
}

// named returns the catalog entry of a plugin; nil if there is none.
func (a *Assignment) named(name string) *clusterv1.PluginRecord {
	for _, record := range a.Plugins {
		if record.GetName() == name {
			return record
		}
	}
	return nil
}

// before is the same assignment with the versions of the plugins that ran before; plugins that have none are not in it.
func (a *Assignment) before() *Assignment {
	earlier := &Assignment{Roles: a.Roles, Policy: a.Policy}
	for _, record := range a.Plugins {
		if record.GetPrevious() != nil {
			earlier.Plugins = append(earlier.Plugins, versionBefore(record))
		}
	}
	return earlier
}

// versionBefore is a catalog entry as it is with the version that ran before: with the grants in force, as far as that version asks for them.
func versionBefore(record *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	version := record.GetPrevious()
	before := &clusterv1.PluginRecord{
		Name: record.GetName(), Version: version.GetVersion(), Digests: version.GetDigests(), Manifest: version.GetManifest(),
		Generation: record.GetGeneration(), Added: version.GetAdded(), Decided: record.GetDecided(), Genesis: record.GetGenesis(),
	}
	before.Grants = remit.Kept(record.GetManifest(), record.GetGrants(), version.GetManifest())
	return before
}
