package role

import (
	"context"
	"io"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Handshake is the go-plugin handshake. It keeps people from starting a plugin by hand; it is no secret.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  1,
	MagicCookieKey:   "REEVE_PLUGIN",
	MagicCookieValue: "reeve.role.v1",
}

// PluginName is go-plugin's name for what Serve serves.
const PluginName = "role"

// MaxMessageSize is the largest message on the plugin connection in bytes, in both directions. A catalog of a few hundred plugins with their schemas
// would exceed gRPC's default of 4 MiB.
const MaxMessageSize = limits.Message

// Plugin is an executable that offers roles.
type Plugin struct {
	// Name of the plugin: 1 to 32 of a-z, 0-9 and '-', a letter first and no '-' last.
	Name string
	// Version is a semantic version (semver 2.0) without a leading v.
	Version string
	// Roles of the plugin, at least one. A process runs one of them.
	Roles []Role
}

// Role is a job of a node, as its author declares and implements it. Only Name and Run are required.
type Role struct {
	// Name of the role, in the form of a plugin's name and unique in a cluster.
	Name string
	// Summary is one line for people.
	Summary string
	// ConsensusUser is the role's name in the consensus store; empty: the role does not use it. It has the form of a role's name and belongs to this
	// role alone. On a node without a member of the store the role is Blocked.
	ConsensusUser string
	// Requires names roles or capabilities that must be Ready on the same node before this role starts.
	Requires []string
	// Provides names the capabilities of this role, such as "reeve.consensus.v1".
	Provides []string
	// Grants are the powers of the host that the role wants. It gets them when the cluster's owner has agreed.
	Grants []Grant
	// GivesUp are groups of system calls that the role does without, besides those that no role is allowed: GiveUpProcesses, GiveUpNetwork. Whoever
	// takes over the role cannot use them either.
	GivesUp []string
	// Configuration is the configuration as a struct, made with Configure. nil: the schema, if any, is written by hand.
	Configuration Configuration
	// ConfigurationSchema is the JSON Schema (draft 2020-12) of the configuration. The cluster refuses what does not match it before the role sees
	// it. If it is empty, and Configuration and CheckConfiguration are nil, the role takes no configuration.
	ConfigurationSchema string
	// Ports on which the role listens by default.
	Ports []Port
	// StartsFromCache says that the role starts from what the node has cached, before the cluster is reached.
	StartsFromCache bool
	// EndsWithCore says that the role ends with its node's core. By default it goes on.
	EndsWithCore bool
	// InSplit is what happens to the role while the node is cut off from its cluster.
	InSplit SplitBehaviour
	// StopGrace is how long Run may take to return when the role is asked to stop: 1 s to 5 min; 0 means 10 s. Then the core ends the process by
	// signals. Whoever stops the node waits for it, so it is for roles that have much to clean up, such as other programs that they run.
	StopGrace time.Duration

	// CheckConfiguration refuses a configuration (a valid JSON document, or nothing) with a *ConfigurationError that has all problems; any other
	// error is one problem of the whole document. It must have no effects and be quick. nil: everything that the schema accepts is valid.
	CheckConfiguration func(document []byte) error
	// CheckGrants refuses grants that are insufficient for a configuration. It is called after CheckConfiguration, and is for a role that could do
	// nothing without them. The core shows the error and waits until the configuration or the grants change. A role that could do part of its work
	// should be Degraded instead. nil: the role starts with any grants.
	CheckGrants func(document []byte, grants []Grant) error
	// Register adds gRPC services to the plugin connection, for the core's calls to the role's capabilities. It is called once, before Start. The
	// services answer FailedPrecondition until the role has started, and while another role of the plugin runs. A call's context ends when Run has
	// returned. nil: none.
	Register func(grpc.ServiceRegistrar)
	// Run does the role's work until ctx is done, which means that the role must stop. Returning earlier is a failure, with or without an error.
	Run func(ctx context.Context, host *Host) error
	// CheckHealth returns an error if the role is not able to work. The core calls it every few seconds from Start on, beside Run. It restarts a role
	// that has not been healthy for some time (20 s unless the node's parameters say otherwise). So the error is for what a new process may fix, such
	// as a stuck loop of Run. For problems outside the process, such as a full disk or an unreachable store, use Host.Degraded. Calls never overlap.
	// ctx ends when nobody waits for the answer any more, and when Run has returned. A panic is an error. nil: a role whose process answers is
	// healthy.
	CheckHealth func(ctx context.Context) error
	// Metrics writes the role's own metrics in Prometheus' text format (version 0.0.4), at most 1 MiB (limits.Metrics). The core adds labels for node
	// and role, and serves them with the node's metrics. It is called at every scrape from Start on, beside Run. Calls never overlap. ctx is as for
	// CheckHealth. After an error or a panic the role's metrics are missing, and nothing else happens. nil: none.
	Metrics func(ctx context.Context, to io.Writer) error
}

// Grant is a named power of the host, narrowed by parameters.
type Grant struct {
	// Name of the power, such as "replace-file".
	Name string
	// Parameters narrow it, such as {"path": "/etc/hosts"}.
	Parameters map[string]string
}

// Port is a network port of a role.
type Port struct {
	Name string
	// Protocol is "tcp" or "udp".
	Protocol string
	// Number is 1 to 65535.
	Number uint16
}

// SplitBehaviour is what happens to a role while its node is cut off from the cluster.
type SplitBehaviour int

const (
	// Told lets the role go on without the consensus store; Host.Membership tells it. This is the default, because most roles serve the machine
	// whatever the cluster does.
	Told SplitBehaviour = iota
	// Continue lets the role go on and keep the consensus store.
	Continue
	// Stop stops the role until the node is Home again.
	Stop
)

func (b SplitBehaviour) proto() (rolev1.SplitBehaviour, bool) {
	switch b {
	case Told:
		return rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_TOLD, true
	case Continue:
		return rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE, true
	case Stop:
		return rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP, true
	}
	return rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_UNSPECIFIED, false
}
