package operate

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Role describes a role that the node should run; *roles.NotDesiredError if it should not.
func (r *Room) Role(_ context.Context, name string) (*nodev1.GetRoleResponse, error) {
	desired, _ := r.Desired.Get()
	at := slices.IndexFunc(desired.Roles, func(d roles.DesiredRole) bool { return d.Assignment.GetRole() == name })
	if at < 0 {
		missing := &roles.NotDesiredError{Role: name}
		for _, d := range desired.Roles {
			missing.Desired = append(missing.Desired, d.Assignment.GetRole())
		}
		slices.Sort(missing.Desired)
		return nil, missing
	}
	wanted := desired.Roles[at]
	answer := &nodev1.GetRoleResponse{Status: &clusterv1.InstanceStatus{Role: name}}
	now, _ := r.Instances.Get()
	var of roles.Instance
	for _, instance := range now {
		if instance.Status.GetRole() == name {
			of = instance
			answer.Status = instance.Status
		}
	}
	if answer.GetStatus().GetRolledBack() != nil && wanted.Previous != nil {
		wanted = *wanted.Previous
	}
	grants, manifest := remit.ForRole(wanted.Plugin.GetGrants(), name), store.ManifestOf(wanted.Plugin, name)
	if of.Remit != nil { // what runs is what it was launched with
		grants, manifest = of.Remit.Grants, of.Remit.Manifest
	}
	answer.Grants, answer.Sandbox = proto.CloneOf(grants), of.Sandbox
	answer.InSplit, answer.StartsFromCache, answer.EndsWithCore = manifest.GetInSplit(), manifest.GetStartsFromCache(), manifest.GetEndsWithCore()
	answer.StopGrace = manifest.GetStopGrace()
	answer.Usage = r.usage(grants, manifest)
	return answer, nil
}

// usage returns what a role's ConsensusUser uses of the store; nil if the role has none, or nothing is known.
func (r *Room) usage(grants *clusterv1.RoleGrants, manifest *rolev1.RoleManifest) *consensusv1.UserUsage {
	store, _ := r.Store.Get()
	user := manifest.GetConsensusUser()
	if user == "" || grants.GetConsensusUser() != user {
		return nil
	}
	for _, usage := range store.GetUsage() {
		if usage.GetConsensusUser() == user {
			return usage
		}
	}
	return nil
}
