package output

import (
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Status is the document of `reeve status`: a node as it sees itself.
type Status struct {
	Node       NodeSelf   `json:"node"`
	Cluster    Cluster    `json:"cluster"`
	Membership Membership `json:"membership"`
	Roles      []Role     `json:"roles"`
}

// NodeSelf is what a node says of itself.
type NodeSelf struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	// APIAddress is empty if the node's own API is served on the local socket only.
	APIAddress string `json:"api_address"`
	// Isolation is "own-uid" or "shared-uid".
	Isolation string `json:"isolation"`
	// Volume is the kind of the node's volume, such as "plain".
	Volume string `json:"volume"`
	// Version is that of reeved.
	Version   string     `json:"version"`
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

// Role is a role on a node: its instance, or why there is none.
type Role struct {
	Role string `json:"role"`
	// State is "Blocked", "Starting", "Ready", "Degraded", "Stopping", "Stopped", "Backoff" or "Failed".
	State  string `json:"state"`
	Reason string `json:"reason"`
	// PID is 0 while no process runs.
	PID        int64             `json:"pid"`
	Restarts   uint32            `json:"restarts"`
	Endpoints  []Endpoint        `json:"endpoints"`
	Values     map[string]string `json:"values"`
	InstanceID string            `json:"instance_id"`
	Plugin     string            `json:"plugin"`
	// PluginVersion and Digest are those of the executable that runs.
	PluginVersion           string     `json:"plugin_version"`
	Digest                  string     `json:"digest"`
	ConfigurationGeneration uint64     `json:"configuration_generation"`
	Since                   *time.Time `json:"since"`
	NextTry                 *time.Time `json:"next_try"`
}

// Endpoint is an address that an instance serves.
type Endpoint struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

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
	Volume     string            `json:"volume"`
	Version    string            `json:"version"`
	Generation uint64            `json:"generation"`
	Created    *time.Time        `json:"created"`
	Reported   *time.Time        `json:"reported"`
	// Assigned are the roles that the node should run.
	Assigned []Assignment `json:"assigned"`
	// Roles are those that the node last reported.
	Roles []Role `json:"roles"`
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

// RoleChange is the document of `reeve node role add` and `remove`.
type RoleChange struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	// Generation is that of the assignment; 0 if it was removed.
	Generation uint64 `json:"generation"`
	// Waited says whether the command waited until it was so.
	Waited bool `json:"waited"`
	// Instance is what the node reports of the role; null if it was not waited for or is gone.
	Instance *Role `json:"instance"`
}

// Plugin is a plugin of the catalog.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digests are the executables, by platform.
	Digests    map[string]string `json:"digests"`
	Generation uint64            `json:"generation"`
	Added      *time.Time        `json:"added"`
	Roles      []PluginRole      `json:"roles"`
}

// PluginRole is a role that a plugin offers, with what it is granted.
type PluginRole struct {
	Role    string `json:"role"`
	Summary string `json:"summary"`
	// ConsensusUser is the one that is granted; empty: none.
	ConsensusUser string   `json:"consensus_user"`
	Requires      []string `json:"requires"`
	Provides      []string `json:"provides"`
	Grants        []Grant  `json:"grants"`
}

// Grant is a power of the host that a role may use.
type Grant struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
}

// Plugins is the document of `reeve plugin list`.
type Plugins struct {
	Plugins []Plugin `json:"plugins"`
}

// LogLine is a line of a role's log: `reeve logs -o json` prints one such document a line.
type LogLine struct {
	Line string `json:"line"`
}

// Version is the document of `reeve version`.
type Version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Down is the document of `reeve dev down`.
type Down struct {
	Directory string `json:"directory"`
	// Stopped is the process ID of the reeved that was stopped; 0 if none ran.
	Stopped int `json:"stopped"`
	// Reaped says whether roles of a core that had died were looked for and stopped.
	Reaped bool `json:"reaped"`
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
			ID:         id,
			Addresses:  list(s.GetNode().GetAddresses()),
			APIAddress: s.GetNode().GetApiAddress(),
			Isolation:  Kind(s.GetNode().GetIsolation()),
			Volume:     s.GetNode().GetVolume(),
			Version:    s.GetNode().GetVersion(),
			CoreStart:  start,
		},
		Cluster: Cluster{ID: clusterID, Curators: list(s.GetCluster().GetCurators())},
		Membership: Membership{
			State:  State(s.GetMembership().GetState()),
			Reason: s.GetMembership().GetReason(),
			Since:  moment(s.GetMembership().GetSince()),
		},
		Roles: newRoles(s.GetNode().GetInstances()),
	}
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
		Volume:     reported.GetVolume(),
		Version:    reported.GetVersion(),
		Generation: record.GetGeneration(),
		Created:    moment(record.GetCreated()),
		Reported:   moment(reported.GetReported()),
		Assigned:   []Assignment{},
		Roles:      newRoles(reported.GetInstances()),
	}
	for _, role := range record.GetRoles() {
		node.Assigned = append(node.Assigned, Assignment{
			Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: role.GetGeneration(),
		})
	}
	return node
}

func newRoles(instances []*clusterv1.InstanceStatus) []Role {
	roles := []Role{}
	for _, instance := range instances {
		roles = append(roles, NewRole(instance))
	}
	return roles
}

// NewRole makes the document of a role on a node.
func NewRole(i *clusterv1.InstanceStatus) Role {
	return Role{
		Role:                    i.GetRole(),
		State:                   State(i.GetState()),
		Reason:                  i.GetReason(),
		PID:                     i.GetPid(),
		Restarts:                i.GetRestarts(),
		Endpoints:               newEndpoints(i.GetEndpoints()),
		Values:                  dictionary(i.GetValues()),
		InstanceID:              i.GetInstanceId(),
		Plugin:                  i.GetPlugin(),
		PluginVersion:           i.GetPluginVersion(),
		Digest:                  i.GetDigest(),
		ConfigurationGeneration: i.GetConfigurationGeneration(),
		Since:                   moment(i.GetSince()),
		NextTry:                 moment(i.GetNextTry()),
	}
}

func newEndpoints(from []*rolev1.Endpoint) []Endpoint {
	endpoints := []Endpoint{}
	for _, endpoint := range from {
		endpoints = append(endpoints, Endpoint{Name: endpoint.GetName(), Address: endpoint.GetAddress()})
	}
	return endpoints
}

// NewPlugin makes the document of a catalog entry.
func NewPlugin(p *clusterv1.PluginRecord) Plugin {
	plugin := Plugin{
		Name:       p.GetName(),
		Version:    p.GetVersion(),
		Digests:    dictionary(p.GetDigests()),
		Generation: p.GetGeneration(),
		Added:      moment(p.GetAdded()),
		Roles:      []PluginRole{},
	}
	granted := make(map[string]*clusterv1.RoleGrants)
	for _, grants := range p.GetGrants() {
		granted[grants.GetRole()] = grants
	}
	for _, role := range p.GetManifest().GetRoles() {
		of := granted[role.GetName()]
		grants := []Grant{}
		for _, grant := range of.GetGrants() {
			grants = append(grants, Grant{Name: grant.GetName(), Parameters: dictionary(grant.GetParameters())})
		}
		plugin.Roles = append(plugin.Roles, PluginRole{
			Role:          role.GetName(),
			Summary:       role.GetSummary(),
			ConsensusUser: of.GetConsensusUser(),
			Requires:      list(role.GetRequires()),
			Provides:      list(role.GetProvides()),
			Grants:        grants,
		})
	}
	return plugin
}

// list and dictionary keep an absent list from becoming null in the documents.
func list(from []string) []string {
	if from == nil {
		return []string{}
	}
	return from
}

func dictionary(from map[string]string) map[string]string {
	if from == nil {
		return map[string]string{}
	}
	return from
}
