package remit

import (
	"slices"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Wanted is all that a manifest asks for, by role in the order of the manifest. Roles that ask for nothing are not in it.
func Wanted(manifest *rolev1.Manifest) []*clusterv1.RoleGrants {
	var all []*clusterv1.RoleGrants
	for _, role := range manifest.GetRoles() {
		if role.GetConsensusUser() != "" || len(role.GetGrants()) > 0 {
			all = append(all, &clusterv1.RoleGrants{Role: role.GetName(), ConsensusUser: role.GetConsensusUser(), Grants: role.GetGrants()})
		}
	}
	return all
}

// Beyond is what a manifest asks for that was not decided on: neither granted nor asked for before, when the owner decided. Roles that ask for
// nothing more are not in it.
func Beyond(manifest *rolev1.Manifest, decided, granted []*clusterv1.RoleGrants) []*clusterv1.RoleGrants {
	var beyond []*clusterv1.RoleGrants
	for _, wanted := range Wanted(manifest) {
		known := []*clusterv1.RoleGrants{ForRole(decided, wanted.GetRole()), ForRole(granted, wanted.GetRole())}
		more := &clusterv1.RoleGrants{Role: wanted.GetRole()}
		isKnownUser := func(grants *clusterv1.RoleGrants) bool { return grants.GetConsensusUser() == wanted.GetConsensusUser() }
		if wanted.GetConsensusUser() != "" && !slices.ContainsFunc(known, isKnownUser) {
			more.ConsensusUser = wanted.GetConsensusUser()
		}
		for _, grant := range wanted.GetGrants() {
			if !slices.ContainsFunc(known, func(grants *clusterv1.RoleGrants) bool { return Has(grants.GetGrants(), grant) }) {
				more.Grants = append(more.Grants, grant)
			}
		}
		if more.GetConsensusUser() != "" || len(more.GetGrants()) > 0 {
			beyond = append(beyond, more)
		}
	}
	return beyond
}

// Kept is what stays granted when another version takes the place of the one that runs, be it a newer one or the one before: of what is granted, that which
// the other one asks for. The parameters of a grant may be the owner's own, and then stay; those that the version which runs asks for and the other one
// does not, go.
func Kept(runs *rolev1.Manifest, granted []*clusterv1.RoleGrants, other *rolev1.Manifest) []*clusterv1.RoleGrants {
	var kept []*clusterv1.RoleGrants
	asked := Wanted(runs)
	for _, wanted := range Wanted(other) {
		granted, asked := ForRole(granted, wanted.GetRole()), ForRole(asked, wanted.GetRole()).GetGrants()
		keep := &clusterv1.RoleGrants{Role: wanted.GetRole()}
		if granted.GetConsensusUser() == wanted.GetConsensusUser() {
			keep.ConsensusUser = wanted.GetConsensusUser()
		}
		for _, grant := range granted.GetGrants() {
			named := slices.ContainsFunc(wanted.GetGrants(), func(other *rolev1.Grant) bool { return other.GetName() == grant.GetName() })
			if Has(wanted.GetGrants(), grant) || named && !Has(asked, grant) {
				keep.Grants = append(keep.Grants, proto.CloneOf(grant))
			}
		}
		kept = append(kept, keep)
	}
	return kept
}

// ForRole is what of a list is for a role; empty, and never nil, if nothing is.
func ForRole(list []*clusterv1.RoleGrants, role string) *clusterv1.RoleGrants {
	for _, grants := range list {
		if grants.GetRole() == role {
			return grants
		}
	}
	return &clusterv1.RoleGrants{Role: role}
}

// Has reports whether a grant is in a list, with the same parameters.
func Has(list []*rolev1.Grant, grant *rolev1.Grant) bool {
	return slices.ContainsFunc(list, func(other *rolev1.Grant) bool { return proto.Equal(other, grant) })
}
