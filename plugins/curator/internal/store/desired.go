package store

import (
	"cmp"
	"slices"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// CapabilityConsensus is the capability of the roles that run a member of the consensus store.
const CapabilityConsensus = "reeve.consensus.v1"

// Desired computes what the consensus role should make true: a user for every granted ConsensusUser but clusterUser, which always is, and a
// member on every node that is Up and is assigned a role that provides the store and does not leave, a new one where the present one is to be replaced. Users that are not granted any more are in it no more, and are wiped if
// that was asked for. The CA of the store's members is replaced each time that one of the cluster was retired. It is a function of the records alone, so it is
// computed again in every transaction that changes them.
func Desired(state *State, clusterUser string) *consensusv1.DesiredState {
	desired := new(consensusv1.DesiredState)
	granted := make(map[string]bool)
	for _, plugin := range state.Plugins {
		for _, grants := range plugin.GetGrants() {
			if user := grants.GetConsensusUser(); user != "" && user != clusterUser {
				granted[user] = true
				bounds, _ := remit.Of(grants.GetGrants()) // they were checked when they were granted; what cannot be read bounds nothing
				desired.Users = append(desired.Users, &consensusv1.DesiredUser{
					ConsensusUser: user, Role: grants.GetRole(), BytesQuota: bounds.StoreBytes, LeasesQuota: bounds.StoreLeases,
				})
			}
		}
	}
	desired.Members, desired.ReplacedMembers, desired.PeerAuthorities = state.StoreNodes(), state.replacedMembers(), state.CARetired
	for _, user := range state.Wiped {
		// Nobody loses keys who has a user, whatever the record says.
		if user != clusterUser && !granted[user] {
			desired.WipedUsers = append(desired.WipedUsers, user)
		}
	}
	slices.Sort(desired.WipedUsers)
	slices.SortFunc(desired.Users, func(a, b *consensusv1.DesiredUser) int {
		return cmp.Compare(a.GetConsensusUser(), b.GetConsensusUser())
	})
	return desired
}

// Role returns the manifest of a role and the plugin that offers it, or nil if the catalog does not know the role.
func (s *State) Role(name string) (*rolev1.RoleManifest, *clusterv1.PluginRecord) {
	for _, plugin := range s.Plugins {
		for _, role := range plugin.GetManifest().GetRoles() {
			if role.GetName() == name {
				return role, plugin
			}
		}
	}
	return nil, nil
}
