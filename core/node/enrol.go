package node

import (
	"crypto/ed25519"
	"slices"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// enrol is how the cluster takes the node in; nil if the node makes its cluster, or is a member.
func (w *whole) enrol() *membership.Enrol {
	configuration, room, register := w.opened.Configuration, w.node.room, w.node.config.Parameters.GetRegister()
	if configuration.Registration == nil || configuration.Phase == seal.Member {
		return nil
	}
	storage := storageOf(room)
	request := &clusterv1.RegisterRequest{
		JoinPublicKey: configuration.JoinKey.Public().(ed25519.PublicKey), Labels: register.GetLabels(), Version: w.node.config.Version,
		Sealer: storage.GetSealer(), Volume: storage.GetKind(),
	}
	for _, role := range register.GetRoles() {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	}
	client := enrol.New(enrol.Config{
		Log: w.log.Named("enrol"), ClusterID: configuration.ClusterID, NodeID: configuration.NodeID(), Key: configuration.NodeKey,
		Pins: configuration.Registration.CAPins, Curators: w.knownCurators,
	})
	return &membership.Enrol{
		Enrolment: client, Request: request, Addresses: w.net.Addresses(), UseTicket: room.UseTicket, UseCUK: room.UseCUK, Incarnation: room.Raise, Keep: w.kept.Keep,
	}
}

// knownCurators are those that the parameters name, and those of the registration. It may be called once the rooms are made.
func (w *whole) knownCurators() []string {
	return slices.Concat(w.node.config.Parameters.GetNetwork().GetCurators(), w.member.KnownCurators())
}
