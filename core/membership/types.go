package membership

import (
	"time"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// State is the node's membership of its cluster.
type State = hostv1.MembershipState

// The membership states, under short names.
const (
	Unknown       = hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN
	Bootstrapping = hostv1.MembershipState_MEMBERSHIP_STATE_BOOTSTRAPPING
	Foreign       = hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN
	Trusted       = hostv1.MembershipState_MEMBERSHIP_STATE_TRUSTED
	Home          = hostv1.MembershipState_MEMBERSHIP_STATE_HOME
	Split         = hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT
	Disowning     = hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING
)

// Status is the node's membership and why it is so.
type Status struct {
	State  State
	Reason string
	Since  time.Time
	// Fresh says that the node is Split only since it has just started: it has not had the time to find its cluster. What ran before goes on meanwhile.
	Fresh bool
	// NodeID is empty before the node has a key.
	NodeID string
	// ClusterID and TrustDomain are empty before the node belongs to a cluster, or makes one.
	ClusterID   string
	TrustDomain string
}

// Contact is whether the cluster is in reach, as the core's client of the cluster API sees it.
type Contact struct {
	OK bool
	// Reason says what is in the way where OK is false, and what is wrong all the same where it is true; empty: nothing is.
	Reason string
}
