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

// Handshake is what core and plugin agree upon before they speak gRPC. It keeps people from starting a plugin by hand; it is no secret.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  1,
	MagicCookieKey:   "REEVE_PLUGIN",
	MagicCookieValue: "reeve.role.v1",
}

// PluginName is the name under which go-plugin knows what Serve serves.
const PluginName = "role"

// MaxMessageSize is how long a message on the plugin connection may be, in bytes, in both directions. gRPC's own 4 MiB would be
// reached by a catalog of a few hundred plugins with their schemas.
const MaxMessageSize = limits.Message

// Plugin is an executable that offers roles.
type Plugin struct {
	// Name of the plugin: 1 to 32 of a-z, 0-9 and '-', a letter first and no '-' last.
	Name string
	// Version as in semver 2.0, without a leading v.
	Version string
	// Roles that the plugin offers, at least one. A process runs one of them.
	Roles []Role
}

// Role is a job of a node, as its author declares and writes it. Name and Run are needed, all else is optional.
type Role struct {
	// Name of the role, written as a plugin's name and unique in a cluster.
	Name string
	// Summary is one line for people.
	Summary string
	// ConsensusUser is the name under which the role uses the consensus store; empty: it does not. It is written as a role's name and
	// belongs to this role alone. A node that runs no member of the store does not run the role, which is Blocked there.
	ConsensusUser string
	// Requires names roles or capabilities that must be Ready on the same node before this role starts.
	Requires []string
	// Provides names the capabilities of this role, such as "reeve.consensus.v1".
	Provides []string
	// Grants are the powers of the host that the role wants. It has them when the cluster's owner has agreed.
	Grants []Grant
	// GivesUp are groups of system calls that the role does without, beyond those that no role is allowed: GiveUpProcesses, GiveUpNetwork. What it has
	// given up, whoever has taken the role over cannot use either.
	GivesUp []string
	// Configuration is the role's configuration as a struct of its author's, as Configure makes it. Nil: the schema, if there is one, is written by hand.
	Configuration Configuration
	// ConfigurationSchema is the JSON Schema (draft 2020-12) of the role's configuration; the cluster refuses what does not fit it before the
	// role sees it. Empty together with a nil Configuration and CheckConfiguration: the role takes no configuration.
	ConfigurationSchema string
	// Ports on which the role listens by default.
	Ports []Port
	// StartsFromCache says that the role starts from what the node has cached, before the cluster is reached.
	StartsFromCache bool
	// EndsWithCore says that the role is to end when the core of its node ends. By default it goes on.
	EndsWithCore bool
	// InSplit is what becomes of the role while the node is cut off from its cluster.
	InSplit SplitBehaviour
	// StopGrace is how long Run may take to return when the role is asked to stop, whatever for: 1 s to 5 min; 0: 10 s. When it is over the core ends the
	// process by signals. Everybody who stops the node waits for it, so it is for roles that have much to put away, such as other programs that they run.
	StopGrace time.Duration

	// CheckConfiguration refuses a configuration (a valid JSON document, or nothing) with a *ConfigurationError that holds all problems;
	// any other error is one problem of the whole document. It must have no effects and be quick. Nil: everything is accepted that the
	// schema accepts.
	CheckConfiguration func(document []byte) error
	// CheckGrants refuses to start with powers of the host that do not suffice for a configuration, as CheckConfiguration refuses the configuration, and
	// after it: for a role that could do nothing without them. The core then says so and waits until the configuration or the grants are others. A
	// role that could do a part of its work is better Degraded. Nil: it starts with whatever it is granted.
	CheckGrants func(document []byte, grants []Grant) error
	// Register adds gRPC services to the plugin connection, on which the core calls what the role's capabilities need. It is called
	// once, before Start; the services answer FailedPrecondition until the role was started, and to calls of a plugin's other roles. The
	// context of a call ends when Run has returned. Nil: none.
	Register func(grpc.ServiceRegistrar)
	// Run does the role's work until ctx is done, which means that the role has been asked to stop. Returning before that is a failure,
	// with an error or without.
	Run func(ctx context.Context, host *Host) error
	// CheckHealth says whether the role is able to work, and why not. The core asks every few seconds from Start on, beside Run; a role that has not said
	// for some time that it is well (20 s unless the node's parameters say otherwise) is ended and started again. So the error is for what a new
	// process may mend, such as a loop of Run's that has not come round for long; what lies outside of the process, such as a full disk or a store
	// that is away, is what Host.Degraded is for. It is never called twice at once. ctx ends when nobody waits for the answer any more, and when Run has
	// returned. A panic is an error. Nil: a role whose process answers at all is well.
	CheckHealth func(ctx context.Context) error
	// Metrics writes the role's own metrics in the text format of Prometheus (version 0.0.4), at most 1 MiB (limits.Metrics): the core adds labels that
	// say whose they are, and shows them among those of the node. It is called at every scrape from Start on, beside Run, and never twice at once; ctx is as
	// that of CheckHealth. After an error or a panic the role's metrics are missing, and nothing else happens. Nil: the role has none.
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

// SplitBehaviour is what becomes of a role while its node is cut off from the cluster.
type SplitBehaviour int

const (
	// Told lets the role go on without the consensus store; it learns of it through Host.Membership. The default: most roles serve the
	// machine, whatever the cluster does.
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
