package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Status is the document of `reeve status`: a node as it sees itself.
type Status struct {
	Node       NodeSelf   `json:"node"`
	Cluster    Cluster    `json:"cluster"`
	Membership Membership `json:"membership"`
	Roles      []Role     `json:"roles"`
	// Store is the local member of the consensus store; null if none runs on the node.
	Store *Store `json:"store"`
	// Storage is the volume and what keeps its keys; null: the node does not say.
	Storage *Storage `json:"storage"`
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
	Missing []MissingPart `json:"missing"`
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

// Membership is a node's membership of its cluster.
type Membership struct {
	// State is "Unknown", "Bootstrapping", "Foreign", "Trusted", "Home", "Split" or "Disowning".
	State  string     `json:"state"`
	Reason string     `json:"reason"`
	Since  *time.Time `json:"since"`
}

// NewStatus makes the document of a node's status.
func NewStatus(s *nodev1.Status) Status {
	id := s.GetNodeId()
	if id == "" {
		id = s.GetMembership().GetNodeId()
	}
	clusterID := s.GetCluster().GetClusterId()
	if clusterID == "" {
		clusterID = s.GetMembership().GetClusterId()
	}
	var start *time.Time
	if s.GetCoreStart() != 0 {
		t := time.Unix(0, s.GetCoreStart()).UTC()
		start = &t
	}
	return Status{
		Node: NodeSelf{
			ID:          id,
			Fingerprint: Fingerprint(s.GetPublicKey()),
			Addresses:   list(s.GetNode().GetAddresses()),
			APIAddress:  s.GetNode().GetApiAddress(),
			Isolation:   Kind(s.GetNode().GetIsolation()),
			Missing:     newMissing(s.GetNode().GetMissing()),
			Volume:      s.GetNode().GetVolume(),
			Version:     s.GetNode().GetVersion(),
			Problem:     s.GetNode().GetProblem(),
			CoreStart:   start,
		},
		Cluster:    Cluster{ID: clusterID, Curators: list(s.GetCluster().GetCurators())},
		Membership: newMembership(s.GetMembership()),
		Roles:      newRoles(s.GetNode().GetInstances()),
		Store:      NewStore(s.GetStore()),
		Storage:    NewStorage(s.GetStorage()),
	}
}

func newMembership(m *hostv1.Membership) Membership {
	return Membership{State: State(m.GetState()), Reason: m.GetReason(), Since: moment(m.GetSince())}
}

// text is the membership in a sentence.
func (m Membership) text() string {
	if m.Reason == "" {
		return m.State
	}
	return m.State + ": " + m.Reason
}

func (s Status) table(w io.Writer, now time.Time) {
	s.head(w)
	if s.Store != nil && s.Store.Problem != "" {
		row(w, "Store", s.Store.Problem)
	}
	_, _ = fmt.Fprintln(w)
	if len(s.Roles) == 0 {
		if closed := s.Storage.Closed(); closed != "" {
			// The problem has a line of its own above.
			if s.Storage.Problem != "" {
				closed = "the volume is " + s.Storage.State
			}
			line(w, "No role runs, since ", closed, ".")
			return
		}
		_, _ = fmt.Fprintln(w, "No roles.")
		return
	}
	roleTable(w, s.Roles, now)
	if s.Membership.State == "Split" {
		s.wishes(w)
	}
}

// wishes says what becomes of the roles while the node is Split, as each has declared it.
func (s Status) wishes(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\nWhile the node is Split:")
	for _, role := range s.Roles {
		row(w, "  "+role.Role, explainSplit(role.InSplit))
	}
}

// head writes what there is to say of the node apart from its roles.
func (s Status) head(w io.Writer) {
	row(w, "Node", s.Node.ID)
	row(w, "Cluster", s.Cluster.ID)
	row(w, "Membership", s.Membership.text())
	if s.Node.Fingerprint != "" && s.Membership.State != "Home" {
		// By which the owner tells it from others when it is to be approved.
		row(w, "Key", s.Node.Fingerprint)
	}
	row(w, "Addresses", strings.Join(s.Node.Addresses, ", "))
	row(w, "Isolation", isolation(s.Node.Isolation, s.Node.Missing))
	s.Storage.rows(w, s.Node.Volume)
	if s.Node.Problem != "" {
		row(w, "Degraded", s.Node.Problem)
	}
}

func explainIsolation(kind string) string {
	if kind == "shared-uid" {
		return kind + " (the roles are not protected from each other: reeved does not run as root)"
	}
	return kind
}
