package output

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Node is a node as the cluster sees it.
type Node struct {
	ID string `json:"id"`
	// State is "New", "Standby", "Up", "Decommissioning" or "Decommissioned".
	State string `json:"state"`
	// Healthy says whether the node's heartbeat is fresh.
	Healthy bool `json:"healthy"`
	// Since is since when it is in its state.
	Since *time.Time `json:"since"`
	// PublicKey is base64 of 32 bytes, by which the node is pinned; Fingerprint is for comparing it.
	PublicKey   string `json:"public_key"`
	Fingerprint string `json:"fingerprint"`
	// Drained says that its roles are held back, but for those that the cluster runs on.
	Drained bool `json:"drained"`
	// Problem is what somebody has to look at; empty: nothing is known.
	Problem string `json:"problem"`
	// Membership is that of its cluster as the node last reported it; null: it did not say.
	Membership *hostv1.Membership `json:"membership"`
	// Store is its place in the consensus store; null: it has no member, and gets none.
	Store *clusterv1.StoreMembership `json:"store"`
	// Registration is with what it registered; null for the node that made the cluster.
	Registration *clusterv1.Registration `json:"registration"`
	Labels       map[string]string       `json:"labels"`
	Addresses    []string                `json:"addresses"`
	APIAddress   string                  `json:"api_address"`
	Isolation    string                  `json:"isolation"`
	// Missing is what the node cannot enforce of sandboxes.
	Missing    []*clusterv1.Missing `json:"missing"`
	Volume     string               `json:"volume"`
	Version    string               `json:"version"`
	Generation uint64               `json:"generation"`
	Created    *time.Time           `json:"created"`
	Reported   *time.Time           `json:"reported"`
	// Assigned are the roles that the node should run.
	Assigned []*clusterv1.RoleAssignment `json:"assigned"`
	// Roles are those that the node last reported.
	Roles []*clusterv1.InstanceStatus `json:"roles"`
	// Storage is its volume and what keeps its keys, as it last reported it; null: it did not say.
	Storage *clusterv1.StorageStatus `json:"storage"`
}

// Nodes is the document of `reeve node list`.
type Nodes struct {
	Nodes []Node `json:"nodes"`
	// Store is how many of its members the store can lose.
	Store Tolerance `json:"store"`
}

// Tolerance is how many members of the store may fail until it has no majority.
type Tolerance struct {
	// Voters are the members that vote, and Healthy those of them on nodes whose heartbeat is fresh. 0: the store has not said yet.
	Voters  int `json:"voters"`
	Healthy int `json:"healthy"`
	// Tolerates is how many of the healthy ones may fail.
	Tolerates int `json:"tolerates"`
}

// NewNodes is the document of nodes, all of a cluster.
func NewNodes(nodes []Node) Nodes {
	document := Nodes{Nodes: nodes}
	for _, node := range nodes {
		if node.Store.GetMemberId() == "" || node.Store.GetLearner() {
			continue
		}
		document.Store.Voters++
		if node.Healthy {
			document.Store.Healthy++
		}
	}
	document.Store.Tolerates = tolerates(document.Store.Voters, document.Store.Healthy)
	return document
}

// tolerates is how many of the healthy voters may fail before there is no majority.
func tolerates(voters, healthy int) int { return max(0, healthy-voters/2-1) }

// String says it for people; empty: nothing is known.
func (t Tolerance) String() string {
	if t.Voters == 0 {
		return ""
	}
	voters := fmt.Sprintf("%d voters, %d of them healthy", t.Voters, t.Healthy)
	if t.Voters == 1 {
		voters = "1 voter"
	}
	text := fmt.Sprintf("The store has %s, and tolerates %d failures.", voters, t.Tolerates)
	if t.Tolerates == 1 {
		text = strings.Replace(text, "failures", "failure", 1)
	}
	return text
}

// Roles is the document of `reeve node role list`.
type Roles struct {
	NodeID string `json:"node_id"`
	// Roles are those that the node should run, and those that it still runs.
	Roles []NodeRole `json:"roles"`
}

// NodeRole is a role of a node: what the cluster wants, and what the node says.
type NodeRole struct {
	Role string `json:"role"`
	// Assigned says whether the node should run it.
	Assigned bool `json:"assigned"`
	// Generation is that of the assignment; 0: it is not assigned.
	Generation uint64 `json:"generation"`
	// Instance is what the node last reported; null: nothing.
	Instance *clusterv1.InstanceStatus `json:"instance"`
}

// NewNode makes the document of a node as the cluster sees it.
func NewNode(n *clusterv1.Node) Node {
	record, reported := n.GetRecord(), n.GetStatus()
	node := Node{
		ID:           record.GetId(),
		State:        State(record.GetState()),
		Healthy:      n.GetHealthy(),
		Since:        moment(record.GetSince()),
		Drained:      record.GetDrained(),
		Problem:      n.GetProblem(),
		Store:        n.GetStore(),
		Labels:       record.GetLabels(),
		Addresses:    reported.GetAddresses(),
		APIAddress:   reported.GetApiAddress(),
		Isolation:    Kind(reported.GetIsolation()),
		Missing:      reported.GetMissing(),
		Volume:       reported.GetVolume(),
		Version:      reported.GetVersion(),
		Generation:   record.GetGeneration(),
		Created:      moment(record.GetCreated()),
		Reported:     moment(reported.GetReported()),
		Assigned:     record.GetRoles(),
		Membership:   reported.GetMembership(),
		Roles:        reported.GetInstances(),
		Storage:      reported.GetStorage(),
		Registration: record.GetRegistration(),
	}
	if key := record.GetPublicKey(); len(key) > 0 {
		node.PublicKey, node.Fingerprint = publicKey(key), Fingerprint(key)
	}
	return node
}

// NewRoles makes the list of a node's roles, sorted by name.
func NewRoles(n *clusterv1.Node) Roles {
	roles := Roles{NodeID: n.GetRecord().GetId(), Roles: []NodeRole{}}
	instances := make(map[string]*clusterv1.InstanceStatus)
	for _, instance := range n.GetStatus().GetInstances() {
		instances[instance.GetRole()] = instance
	}
	for _, assignment := range n.GetRecord().GetRoles() {
		name := assignment.GetRole()
		roles.Roles = append(roles.Roles, NodeRole{
			Role: name, Assigned: true, Generation: assignment.GetGeneration(), Instance: instances[name],
		})
		delete(instances, name)
	}
	for name, instance := range instances {
		roles.Roles = append(roles.Roles, NodeRole{Role: name, Instance: instance})
	}
	sortBy(roles.Roles, func(r NodeRole) string { return r.Role })
	return roles
}

func (n Nodes) table(w io.Writer, _ time.Time) {
	row(w, "NODE", "STATE", "HEALTHY", "ROLES", "VERSION", "ADDRESSES", "VOLUME", "ISOLATION", "LABELS", "PROBLEM")
	for _, node := range n.Nodes {
		row(w, node.ID, node.state(), node.health(), strings.Join(node.roleStates(), ","), node.version(), strings.Join(node.addresses(), ","), node.volume(),
			node.Isolation, labels(node.Labels), node.Problem)
	}
	if text := n.Store.String(); text != "" {
		_, _ = fmt.Fprintln(w, text)
	}
}

// state is the node's state, in a cell.
func (n Node) state() string {
	if n.Drained {
		return n.State + ",drained"
	}
	return n.State
}

// health is whether a node lives, as far as it is to live: one that does, and has a problem, is degraded.
func (n Node) health() string {
	switch n.State {
	case "New", "Standby", "Decommissioned":
		return ""
	}
	if n.Healthy && n.Problem != "" {
		return "degraded"
	}
	return yesNo(n.Healthy)
}

// problemRow says what the cluster finds wrong with the node.
func (n Node) problemRow(w io.Writer) {
	if n.Problem != "" {
		row(w, "Problem", n.Problem)
	}
}

// roleStates are the roles that the node should run, each with how it is if that is not Ready.
func (n Node) roleStates() []string {
	if n.State == "New" {
		return nil
	}
	var texts []string
	for _, assigned := range n.Assigned {
		text := assigned.GetRole()
		i := slices.IndexFunc(n.Roles, func(role *clusterv1.InstanceStatus) bool { return role.GetRole() == text })
		switch {
		case assigned.GetLeaving():
			text += "(leaving)"
		case i < 0 && n.Reported != nil:
			text += "(not reported)"
		case i >= 0:
			text = roleState(n.Roles[i])
		}
		texts = append(texts, text)
	}
	return texts
}

// version is that of the node's core: as it last reported it, or as it registered.
func (n Node) version() string {
	if n.Version == "" {
		return n.Registration.GetVersion()
	}
	return n.Version
}

func (n Node) addresses() []string {
	if len(n.Addresses) == 0 {
		return n.Registration.GetAddresses()
	}
	return n.Addresses
}

// volume says of which kind the volume is, and whether it is encrypted.
func (n Node) volume() string {
	if n.Storage != nil {
		return explainVolume(n.Storage.GetKind(), n.Storage.GetEncrypted())
	}
	if n.Volume == "" && n.Registration != nil {
		return registeredVolume(n.Registration)
	}
	return explainVolume(n.Volume, n.Volume != "plain")
}

func (r Roles) table(w io.Writer, now time.Time) {
	row(w, "ROLE", "ASSIGNED", "STATE", "PLUGIN", "VERSION", "TIER", "RESTARTS", "SINCE", "REASON")
	for _, role := range r.Roles {
		instance := role.Instance
		if instance == nil {
			row(w, role.Role, yesNo(role.Assigned), "", "", "", "", "", "", "the node has not reported it")
			continue
		}
		reason := instance.GetReason()
		if reason == "" && instance.GetRolledBack() != nil {
			reason = rolledBackText(instance.GetRolledBack())
		}
		row(w, role.Role, yesNo(role.Assigned), State(instance.GetState()), instance.GetPlugin(), instance.GetPluginVersion(), Kind(instance.GetTier()),
			number(instance.GetRestarts()), age(moment(instance.GetSince()), now), reason)
	}
}
