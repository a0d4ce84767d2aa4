package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/corecaps"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Status is the document of `reeve status`: a node as it sees itself.
type Status struct {
	Node       NodeSelf                    `json:"node"`
	Cluster    Cluster                     `json:"cluster"`
	Membership *hostv1.Membership          `json:"membership"`
	Roles      []*clusterv1.InstanceStatus `json:"roles"`
	// Store is the local member of the consensus store; null if none runs on the node.
	Store *consensusv1.StoreStatus `json:"store"`
	// Storage is the volume and what keeps its keys; null: the node does not say.
	Storage *clusterv1.StorageStatus `json:"storage"`
	// Snapshots are those that are taken by schedule, as the node's curator shows them; null: there is no schedule, or no curator runs on the node.
	Snapshots *ScheduledSnapshots `json:"snapshots"`
	// Problems are what somebody has to look at, besides what membership and storage say.
	Problems []string `json:"problems"`
}

// NodeSelf is what a node says of itself.
type NodeSelf struct {
	ID string `json:"id"`
	// Fingerprint is that of its public key, by which it is told from others when it is to be approved; empty: it has none yet.
	Fingerprint string   `json:"fingerprint"`
	Addresses   []string `json:"addresses"`
	// APIAddress is empty if the node's own API is served on the local socket only.
	APIAddress string `json:"api_address"`
	// Isolation is "own-uid" or "shared-uid".
	Isolation string `json:"isolation"`
	// Missing is what the node cannot enforce of sandboxes.
	Missing []*clusterv1.Missing `json:"missing"`
	// LackingCapabilities are those of Linux that reeved, as root, uses and does not have.
	LackingCapabilities []string `json:"lacking_capabilities"`
	// Volume is the kind of the node's volume, such as "plain".
	Volume string `json:"volume"`
	// Version is that of reeved.
	Version string `json:"version"`
	// Problem is why the node is degraded although its roles may all be well, and what to do about it; empty: it is not.
	Problem   string     `json:"problem"`
	CoreStart *time.Time `json:"core_start"`
}

// Cluster is how a node reaches its cluster.
type Cluster struct {
	ID       string   `json:"id"`
	Curators []string `json:"curators"`
}

// NewStatus makes the document of a node's status.
func NewStatus(s *nodev1.Status) Status {
	membership := s.GetMembership()
	if membership == nil {
		membership = &hostv1.Membership{}
	}
	var start *time.Time
	if s.GetCoreStart() != 0 {
		t := time.Unix(0, s.GetCoreStart()).UTC()
		start = &t
	}
	return Status{
		Node: NodeSelf{
			ID:                  cmp.Or(s.GetNodeId(), membership.GetNodeId()),
			Fingerprint:         Fingerprint(s.GetPublicKey()),
			Addresses:           s.GetNode().GetAddresses(),
			APIAddress:          s.GetNode().GetApiAddress(),
			Isolation:           Kind(s.GetNode().GetIsolation()),
			Missing:             s.GetNode().GetMissing(),
			LackingCapabilities: s.GetLackingCapabilities(),
			Volume:              s.GetNode().GetVolume(),
			Version:             s.GetNode().GetVersion(),
			Problem:             s.GetNode().GetProblem(),
			CoreStart:           start,
		},
		Cluster:    Cluster{ID: cmp.Or(s.GetCluster().GetClusterId(), membership.GetClusterId()), Curators: s.GetCluster().GetCurators()},
		Membership: membership,
		Roles:      s.GetNode().GetInstances(),
		Store:      s.GetStore(),
		Storage:    s.GetStorage(),
		Snapshots:  newScheduledSnapshots(s.GetNode().GetInstances()),
		Problems:   problem.OfStatus(s),
	}
}

// membershipText is a membership in a sentence.
func membershipText(m *hostv1.Membership) string {
	return WithReason(State(m.GetState()), m.GetReason())
}

func (s Status) table(w io.Writer, now time.Time) {
	s.head(w, now)
	_, _ = fmt.Fprintln(w)
	if len(s.Roles) == 0 {
		if closed := ExplainClosed(s.Storage); closed != "" {
			// The problem has a line of its own above.
			if s.Storage.GetProblem() != "" {
				closed = "the volume is " + State(s.Storage.GetState())
			}
			line(w, "No role runs, since ", closed, ".")
			return
		}
		_, _ = fmt.Fprintln(w, "No roles.")
		return
	}
	roleTable(w, s.Roles, now)
	if s.Membership.GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT {
		s.wishes(w)
	}
}

// wishes says what each role does while the node is Split, as its manifest declares.
func (s Status) wishes(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\nWhile the node is Split:")
	for _, role := range s.Roles {
		row(w, "  "+role.GetRole(), explainSplit(InSplit(role.GetInSplit())))
	}
}

// head writes what there is to say of the node apart from its roles.
func (s Status) head(w io.Writer, now time.Time) {
	row(w, "Node", s.Node.ID)
	row(w, "Cluster", s.Cluster.ID)
	row(w, "Membership", membershipText(s.Membership))
	if s.Node.Fingerprint != "" && s.Membership.GetState() != hostv1.MembershipState_MEMBERSHIP_STATE_HOME {
		// By which the owner tells it from others when it is to be approved.
		row(w, "Key", s.Node.Fingerprint)
	}
	row(w, "Addresses", strings.Join(s.Node.Addresses, ", "))
	row(w, "Isolation", isolation(s.Node.Isolation, s.Node.Missing))
	if lacking := s.Node.LackingCapabilities; len(lacking) > 0 {
		row(w, "Capabilities", strings.TrimSuffix("reeved runs without "+strings.Join(lacking, ", ")+": "+corecaps.Explain(corecaps.Named(lacking)), ": "))
	}
	storageRows(w, s.Storage, s.Node.Volume)
	if s.Snapshots != nil {
		row(w, "Snapshots", s.Snapshots.text(now))
	}
	for _, problem := range s.Problems {
		row(w, "Problem", problem)
	}
}

func explainIsolation(kind string) string {
	if kind == "shared-uid" {
		return kind + " (the roles are not protected from each other: reeved does not run as root)"
	}
	return kind
}
