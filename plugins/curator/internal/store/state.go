package store

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// State is the state of the cluster at one revision of the store, or the part of it that was asked for. Nothing of it is changed once it was
// returned: With and Apply make new ones.
type State struct {
	// Revision is the store's revision that the state reflects.
	Revision int64
	// Cluster is nil if there is no cluster yet.
	Cluster *curatorv1.Cluster
	// CA is the certificates of the cluster CA, DER, the signing one first.
	CA [][]byte
	// CAPrepared is whether the last certificate of CA is one that will sign, and not one that did.
	CAPrepared bool
	// CARetired is how many were retired so far.
	CARetired uint64
	signing   *signing // of CA, by setCA
	// Epoch counts the management writes.
	Epoch         uint64
	epochRevision int64 // the revision that last wrote it
	// Nodes is by node ID, Plugins by name.
	Nodes   map[string]*clusterv1.NodeRecord
	Plugins map[string]*clusterv1.PluginRecord
	// Policy is what the owner demands of all nodes; nil: nobody has ever set it. Demands fills in what that means.
	Policy *clusterv1.ClusterPolicy
	// Wiped is the ConsensusUsers whose keys are to be removed, sorted. None of them is granted.
	Wiped []string
	// Operators is by name.
	Operators map[string]*clusterv1.Operator
	// Statuses is what nodes reported, by node ID; a node that never did is not in it.
	Statuses map[string]*clusterv1.NodeStatus
	// Beats holds the IDs of the nodes whose heartbeat is fresh, with the lease by which it is.
	Beats map[string]clientv3.LeaseID
	// Store is how far the consensus store has come, as its leader last told; nil: nobody knows.
	Store *consensusv1.StoreState
	// Generation is that of a store that was begun again; nil: it is the first one.
	Generation *consensusv1.StoreGeneration
	// DesiredRevision is the revision that last wrote what the consensus store is to be; 0: it was not read.
	DesiredRevision int64
	// Tickets is by ID.
	Tickets map[string]*curatorv1.Ticket
	// Incarnations is the start of each node's core that is taken for the node, and Refused the one that was refused last, by node ID.
	Incarnations map[string]*curatorv1.KnownIncarnation
	Refused      map[string]*curatorv1.RefusedIncarnation
	// SnapshotTask is the scheduled snapshot that was asked for last; nil: none ever was. Snapshots is what nodes have of them, by node ID.
	SnapshotTask *clusterv1.SnapshotTask
	Snapshots    map[string]*clusterv1.NodeSnapshots
	// Damaged is the records that could not be read, by key. They are missing from the rest.
	Damaged map[string]error
}

func newState(revision int64) *State {
	return &State{
		Revision:  revision,
		Nodes:     make(map[string]*clusterv1.NodeRecord),
		Plugins:   make(map[string]*clusterv1.PluginRecord),
		Operators: make(map[string]*clusterv1.Operator),
		Statuses:  make(map[string]*clusterv1.NodeStatus),
		Beats:     make(map[string]clientv3.LeaseID),
		Snapshots: make(map[string]*clusterv1.NodeSnapshots),
		Damaged:   make(map[string]error),

		Tickets:      make(map[string]*curatorv1.Ticket),
		Incarnations: make(map[string]*curatorv1.KnownIncarnation),
		Refused:      make(map[string]*curatorv1.RefusedIncarnation),
	}
}

func (s *State) clone() *State {
	c := *s
	c.Nodes = maps.Clone(s.Nodes)
	c.Plugins = maps.Clone(s.Plugins)
	c.Operators = maps.Clone(s.Operators)
	c.Statuses = maps.Clone(s.Statuses)
	c.Beats = maps.Clone(s.Beats)
	c.Snapshots = maps.Clone(s.Snapshots)
	c.Damaged = maps.Clone(s.Damaged)
	c.Tickets = maps.Clone(s.Tickets)
	c.Incarnations = maps.Clone(s.Incarnations)
	c.Refused = maps.Clone(s.Refused)
	return &c
}

// Demands returns what the owner demands of all nodes. A policy that was never set counts as the first one, so that its generation is never 0.
func (s *State) Demands() *clusterv1.ClusterPolicy {
	if s.Policy != nil {
		return s.Policy
	}
	return &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, Generation: 1}
}

// Alive reports whether the heartbeat of a node is fresh.
func (s *State) Alive(node string) bool {
	_, is := s.Beats[node]
	return is
}

// HasNode reports whether there is a record of a node, be it damaged.
func (s *State) HasNode(id string) bool { return s.Nodes[id] != nil || s.Damaged[nodeKey(id)] != nil }

// NodeIDs returns the IDs of all nodes, sorted.
func (s *State) NodeIDs() []string { return slices.Sorted(maps.Keys(s.Nodes)) }

// PluginNames returns the names of all plugins of the catalog, sorted.
func (s *State) PluginNames() []string { return slices.Sorted(maps.Keys(s.Plugins)) }

// Catalog returns all plugins, sorted by name.
func (s *State) Catalog() []*clusterv1.PluginRecord {
	plugins := make([]*clusterv1.PluginRecord, 0, len(s.Plugins))
	for _, name := range s.PluginNames() {
		plugins = append(plugins, s.Plugins[name])
	}
	return plugins
}

// OperatorList returns all operators, sorted by name.
func (s *State) OperatorList() []*clusterv1.Operator {
	operators := make([]*clusterv1.Operator, 0, len(s.Operators))
	for _, name := range slices.Sorted(maps.Keys(s.Operators)) {
		operators = append(operators, s.Operators[name])
	}
	return operators
}

// HasPerson reports whether an operator stands who had a name and an ID, or, without a name, the owner key with an ID.
func (s *State) HasPerson(operator, id string) bool {
	if operator == "" {
		key := ed25519.PublicKey(s.Cluster.GetOwnerPublicKey())
		return len(key) == ed25519.PublicKeySize && identity.OwnerKeyID(key) == id
	}
	record := s.Operators[operator]
	return record != nil && record.GetId() == id
}

// Node returns a node as operators see it, or nil if there is no record of it.
func (s *State) Node(id string) *clusterv1.Node {
	record, ok := s.Nodes[id]
	if !ok {
		return nil
	}
	node := &clusterv1.Node{Record: record, Status: s.Statuses[id], Healthy: s.Alive(id), Store: s.membership(record)}
	problems := problem.OfNode(node)
	if first := cmp.Or(s.refused(id), s.leftOut(id)); first != "" {
		problems = append([]string{first}, problems...)
	}
	node.Problem = problem.Join(problems)
	return node
}

// With returns the state after a change.
func (s *State) With(change *Change) *State {
	after := s.clone()
	if change.Cluster != nil {
		after.Cluster = change.Cluster
	}
	for _, operator := range change.Operators {
		after.Operators[operator.GetName()] = operator
	}
	for _, name := range change.Revoked {
		delete(after.Operators, name)
	}
	for _, node := range change.Nodes {
		after.Nodes[node.GetId()] = node
	}
	for _, id := range change.Forgotten {
		delete(after.Nodes, id)
	}
	for _, plugin := range change.Plugins {
		after.Plugins[plugin.GetName()] = plugin
	}
	for _, name := range change.RemovedPlugins {
		delete(after.Plugins, name)
	}
	if change.Policy != nil {
		after.Policy = change.Policy
	}
	if change.SnapshotTask != nil {
		after.SnapshotTask = change.SnapshotTask
	}
	for _, ticket := range change.Tickets {
		after.Tickets[ticket.GetId()] = ticket
	}
	for _, id := range change.RevokedTickets {
		delete(after.Tickets, id)
		delete(after.Damaged, ticketKey(id))
	}
	if change.Authority != nil {
		after.setCA(change.Authority.CA)
	}
	after.Wiped = wiped(append(slices.Clone(s.Wiped), change.WipedUsers...), after.Plugins)
	return after
}

// wiped returns those of some ConsensusUsers that nobody is granted, sorted, each once.
func wiped(users []string, plugins map[string]*clusterv1.PluginRecord) []string {
	granted := make(map[string]bool)
	for _, plugin := range plugins {
		for _, grants := range plugin.GetGrants() {
			granted[grants.GetConsensusUser()] = true
		}
	}
	users = slices.DeleteFunc(users, func(user string) bool { return granted[user] })
	slices.Sort(users)
	return slices.Compact(users)
}

// Apply returns the state after the events of a watch, at the revision that the watch had reached.
func (s *State) Apply(revision int64, events []*clientv3.Event) *State {
	if len(events) == 0 {
		after := *s
		after.Revision = max(after.Revision, revision)
		return &after
	}
	after := s.clone()
	after.Revision = max(after.Revision, revision)
	for _, event := range events {
		if event.Type == mvccpb.DELETE {
			after.remove(string(event.Kv.Key))
			continue
		}
		after.put(event.Kv)
	}
	return after
}

// Holds reports whether a State holds anything of what lies at a key. It does not of certificates, for one, of which many nodes with many roles get one all the time.
func Holds(key string) bool {
	record, err := decode(key, nil)
	return record != nil || err != nil || key == keyDesired
}

// Reported reports whether at a key lies what a node or the consensus store says of itself, over and over: none of the records that are changed by a decision.
func Reported(key string) bool {
	kind, _ := split(key)
	return kind == prefixStatus || kind == prefixHeartbeats || kind == keyStoreState || kind == prefixSnapshots
}

// CheckCluster returns what is wrong with the record that makes the cluster: with it nothing can be done at all.
func (s *State) CheckCluster() error {
	if s.Cluster != nil && s.Cluster.GetFormat() != Format {
		return &FormatError{Format: s.Cluster.GetFormat()}
	}
	return s.Damaged[keyCluster]
}

// Check returns what is wrong with the records that decisions are made of.
func (s *State) Check() error {
	if err := s.CheckCluster(); err != nil {
		// The other records may not be damaged, but another version's.
		return err
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(s.Damaged)) {
		if !harmless(key) {
			problems = append(problems, s.Damaged[key])
		}
	}
	return errors.Join(problems...)
}

// harmless reports whether a record may be damaged without anything else being decided wrongly: a node that reported nonsense, a consensus role that did, or a ticket
// that nobody can read must not stop the cluster's management. A ticket that is damaged is none: nobody registers with it.
func harmless(key string) bool {
	switch kind, _ := split(key); kind {
	case prefixStatus, keyStoreState, prefixSnapshots, prefixRefused, prefixIncarnations, prefixTickets:
		return true
	}
	return false
}

// DamagedTickets returns what is wrong with the tickets whose records cannot be read, by what the records are called: their IDs, or whatever else is there.
func (s *State) DamagedTickets() map[string]error {
	damaged := make(map[string]error)
	for key, problem := range s.Damaged {
		if kind, name := split(key); kind == prefixTickets {
			damaged[name] = problem
		}
	}
	return damaged
}

func (s *State) remove(key string) {
	delete(s.Damaged, key)
	switch kind, name := split(key); kind {
	case keyCluster:
		s.Cluster = nil
	case keyCertificates:
		s.setCA(nil)
	case keyStoreState:
		s.Store = nil
	case keyGeneration:
		s.Generation = nil
	case keyDesired:
		s.DesiredRevision = 0
	case keyEpoch:
		s.Epoch = 0
	case keyPolicy:
		s.Policy = nil
	case keyWiped:
		s.Wiped = nil
	case keySnapshotTask:
		s.SnapshotTask = nil
	case prefixSnapshots:
		delete(s.Snapshots, name)
	case prefixNodes:
		delete(s.Nodes, name)
	case prefixPlugins:
		delete(s.Plugins, name)
	case prefixOperators:
		delete(s.Operators, name)
	case prefixStatus:
		delete(s.Statuses, name)
	case prefixHeartbeats:
		delete(s.Beats, name)
	case prefixTickets:
		delete(s.Tickets, name)
	case prefixIncarnations:
		delete(s.Incarnations, name)
	case prefixRefused:
		delete(s.Refused, name)
	}
}

// put takes a record into the state. One that cannot be read takes the place of the one that was there.
func (s *State) put(kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	s.remove(key)
	if key == keyEpoch {
		s.epochRevision = kv.ModRevision
	}
	if key == keyDesired {
		// What it says is computed from the other records; when it was written is what the consensus store answers.
		s.DesiredRevision = kv.ModRevision
		return
	}
	record, err := decode(key, kv.Value)
	if err != nil {
		s.Damaged[key] = err
		return
	}
	switch _, name := split(key); record := record.(type) {
	case *curatorv1.Cluster:
		s.Cluster = record
	case *curatorv1.CertificateAuthority:
		s.setCA(record)
	case *consensusv1.StoreState:
		s.Store = record
	case *consensusv1.StoreGeneration:
		s.Generation = record
	case *curatorv1.Epoch:
		s.Epoch = record.GetNumber()
	case *clusterv1.ClusterPolicy:
		s.Policy = record
	case *curatorv1.WipedUsers:
		s.Wiped = record.GetConsensusUsers()
	case *clusterv1.NodeRecord:
		s.Nodes[name] = record
	case *clusterv1.PluginRecord:
		s.Plugins[name] = record
	case *clusterv1.Operator:
		s.Operators[name] = record
	case *clusterv1.SnapshotTask:
		s.SnapshotTask = record
	case *clusterv1.NodeSnapshots:
		s.Snapshots[name] = record
	case *clusterv1.NodeStatus:
		s.Statuses[name] = record
	case *curatorv1.Heartbeat:
		s.Beats[name] = clientv3.LeaseID(kv.Lease)
	case *curatorv1.Ticket:
		s.Tickets[name] = record
	case *curatorv1.KnownIncarnation:
		s.Incarnations[name] = record
	case *curatorv1.RefusedIncarnation:
		s.Refused[name] = record
	}
}

func (s *State) setCA(record *curatorv1.CertificateAuthority) {
	s.CA, s.CAPrepared, s.CARetired = record.GetCertificates(), record.GetPrepared(), record.GetRetired()
	s.signing = newSigning(s.CA)
}
