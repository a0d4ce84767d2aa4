package output

import (
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Node is a node as the cluster sees it.
type Node struct {
	ID string `json:"id"`
	// State is "New", "Standby", "Up", "Decommissioning" or "Decommissioned".
	State string `json:"state"`
	// Healthy says whether the node's heartbeat is fresh.
	Healthy    bool              `json:"healthy"`
	Labels     map[string]string `json:"labels"`
	Addresses  []string          `json:"addresses"`
	APIAddress string            `json:"api_address"`
	Isolation  string            `json:"isolation"`
	// Missing is what the node cannot enforce of sandboxes.
	Missing    []MissingPart `json:"missing"`
	Volume     string        `json:"volume"`
	Version    string        `json:"version"`
	Generation uint64        `json:"generation"`
	Created    *time.Time    `json:"created"`
	Reported   *time.Time    `json:"reported"`
	// Assigned are the roles that the node should run.
	Assigned []Assignment `json:"assigned"`
	// Roles are those that the node last reported.
	Roles []Role `json:"roles"`
	// Storage is its volume and what keeps its keys, as it last reported it; null: it did not say.
	Storage *Storage `json:"storage"`
}

// Assignment is a role that a node should run.
type Assignment struct {
	Role string `json:"role"`
	// Configuration is a JSON document as text; empty: none.
	Configuration string `json:"configuration"`
	Generation    uint64 `json:"generation"`
}

// Nodes is the document of `reeve node list`.
type Nodes struct {
	Nodes []Node `json:"nodes"`
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
	Instance *Role `json:"instance"`
}

// NewNode makes the document of a node as the cluster sees it.
func NewNode(n *clusterv1.Node) Node {
	record, reported := n.GetRecord(), n.GetStatus()
	node := Node{
		ID:         record.GetId(),
		State:      State(record.GetState()),
		Healthy:    n.GetHealthy(),
		Labels:     dictionary(record.GetLabels()),
		Addresses:  list(reported.GetAddresses()),
		APIAddress: reported.GetApiAddress(),
		Isolation:  Kind(reported.GetIsolation()),
		Missing:    newMissing(reported.GetMissing()),
		Volume:     reported.GetVolume(),
		Version:    reported.GetVersion(),
		Generation: record.GetGeneration(),
		Created:    moment(record.GetCreated()),
		Reported:   moment(reported.GetReported()),
		Assigned:   []Assignment{},
		Roles:      newRoles(reported.GetInstances()),
		Storage:    NewStorage(reported.GetStorage()),
	}
	for _, role := range record.GetRoles() {
		node.Assigned = append(node.Assigned, Assignment{
			Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: role.GetGeneration(),
		})
	}
	return node
}

// NewRoles makes the list of a node's roles, sorted by name.
func NewRoles(n *clusterv1.Node) Roles {
	roles := Roles{NodeID: n.GetRecord().GetId(), Roles: []NodeRole{}}
	instances := make(map[string]*Role)
	for _, instance := range n.GetStatus().GetInstances() {
		role := NewRole(instance)
		instances[role.Role] = &role
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
	row(w, "NODE", "STATE", "HEALTHY", "ADDRESSES", "VOLUME", "ROLES")
	for _, node := range n.Nodes {
		row(w, node.ID, node.State, yesNo(node.Healthy), strings.Join(node.Addresses, ","), node.volume(), strings.Join(node.assigned(), ","))
	}
}

// volume says of which kind the volume is, and whether it is encrypted.
func (n Node) volume() string {
	if n.Storage != nil {
		return explainVolume(n.Storage.Kind, n.Storage.Encrypted)
	}
	return explainVolume(n.Volume, n.Volume != "plain")
}

func (n Node) assigned() []string {
	var roles []string
	for _, role := range n.Assigned {
		roles = append(roles, role.Role)
	}
	return roles
}

func (r Roles) table(w io.Writer, now time.Time) {
	row(w, "ROLE", "ASSIGNED", "STATE", "PLUGIN", "VERSION", "TIER", "RESTARTS", "SINCE", "REASON")
	for _, role := range r.Roles {
		instance := role.Instance
		if instance == nil {
			row(w, role.Role, yesNo(role.Assigned), "", "", "", "", "", "", "the node has not reported it")
			continue
		}
		reason := instance.Reason
		if reason == "" && instance.RolledBack != nil {
			reason = instance.RolledBack.text()
		}
		row(w, role.Role, yesNo(role.Assigned), instance.State, instance.Plugin, instance.PluginVersion, instance.Tier,
			number(instance.Restarts), age(instance.Since, now), reason)
	}
}
