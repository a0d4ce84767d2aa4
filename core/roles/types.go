package roles

import (
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/plugin"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Desired is what should run on this node.
type Desired struct {
	Roles []DesiredRole
}

// DesiredRole is one role that should run on this node.
type DesiredRole struct {
	Assignment *clusterv1.RoleAssignment
	// Plugin is the catalog entry of the plugin that offers the role; nil if the catalog has none (the role is then Failed).
	Plugin *clusterv1.PluginRecord
	// Hold, if not empty, says why the role must not run at present: it is stopped and Blocked with this reason.
	Hold string
	// Gate, if not empty, says why the role must not be started at present: it is Blocked with this reason unless it runs.
	Gate string
	// Failed, if not empty, says why starting the role is pointless: it is stopped and Failed with this reason.
	Failed string
	// Previous is the role as the version of the plugin that ran before offers it: what runs if the present one does not come to work here
	// (versions.go). Its own Previous is not looked at. nil: there is nothing to go back to.
	Previous *DesiredRole

	// onTrial says that the version has not come to work here yet, and that there is one to go back to. back, if not nil, says that this is the version
	// before, and why it runs.
	onTrial bool
	back    *clusterv1.RolledBack
}

// Instances is the state of every role of this node, sorted by role.
type Instances []Instance

// Instance is a role on this node, whether a process runs for it or not.
type Instance struct {
	// Status is what is reported of it. Never nil, never changed after it was published.
	Status *clusterv1.InstanceStatus
	// Provides is the capabilities that the role provides by the manifest of what it is to run as.
	Provides []string
	// Remit and Process are nil while no process runs.
	Remit   *plugin.Remit
	Process *plugin.Process
	// Sandbox is what confines the process; nil while none runs, or if that is not known.
	Sandbox *nodev1.Sandbox
}

// Capabilities is who provides which capability on this node: capability (or role name) to provider. Only roles whose process has been
// started are in it, Ready or not. Of several roles that claim a capability one has it, and keeps it while it is desired and may run: while it
// restarts the capability is absent, rather than another role's.
type Capabilities map[string]Provider

// Provider is an instance that provides a capability.
type Provider struct {
	InstanceID string
	Role       string
	State      hostv1.InstanceState
	// ConsensusUser is the user that is granted to the role; empty: none.
	ConsensusUser string
	// Conn is the plugin connection, on which the services of the capability's protocol are called. It is closed when the process ends.
	Conn      grpc.ClientConnInterface
	Endpoints []*rolev1.Endpoint
}

// The capabilities that the core itself looks for.
const (
	CapabilityConsensus = "reeve.consensus.v1"
	CapabilityCluster   = "reeve.cluster.v1"
)
