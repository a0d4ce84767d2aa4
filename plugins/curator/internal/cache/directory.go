package cache

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// sources is what a node of the directory is made of. Records are never changed, so that those of the same sources are the same.
type sources struct {
	record *clusterv1.NodeRecord
	status *clusterv1.NodeStatus
	alive  bool
	room   int
}

// drawn is a node as it was last put into the directory; nil: it is not in it.
type drawn struct {
	from sources
	node *hostv1.DirectoryNode
}

// directory makes directories, one after another: of each node again only when something of it has changed, since most of them have not.
type directory struct {
	ids   []string // of all records, sorted
	nodes map[string]drawn
}

// draw makes the directory of a state, but for its revision: the nodes that are members, also those that leave and are not gone yet, with what they reported of the
// roles that are assigned to them. It returns the IDs of those that are not as they were in the one before, sorted. With hold, a node stays as it was if nothing but values
// of its roles have changed; held says that there is one.
func (d *directory) draw(state *store.State, hold bool) (directory *hostv1.Directory, changed []string, held bool) {
	if !d.knows(state) {
		d.ids = state.NodeIDs()
	}
	before := d.nodes
	d.nodes = make(map[string]drawn, len(d.ids))
	directory = &hostv1.Directory{Nodes: make([]*hostv1.DirectoryNode, 0, len(d.ids))}
	room := Room(state)
	for _, id := range d.ids {
		last := before[id]
		now := drawn{from: sources{record: state.Nodes[id], status: state.Statuses[id], alive: state.Alive(id), room: room}, node: last.node}
		if now.from != last.from {
			now.node = nodeOf(id, now.from)
			switch both := last.node != nil && now.node != nil; {
			case both && proto.Equal(now.node, last.node):
				now.node = last.node
			case both && hold && proto.Equal(withoutValues(now.node), withoutValues(last.node)):
				now, held = last, true
			}
		}
		d.nodes[id] = now
		if now.node != last.node {
			changed = append(changed, id)
		}
		if now.node != nil {
			directory.Nodes = append(directory.Nodes, now.node)
		}
	}
	for id, last := range before {
		if _, is := d.nodes[id]; !is && last.node != nil {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	return directory, changed, held
}

func withoutValues(node *hostv1.DirectoryNode) *hostv1.DirectoryNode {
	node = proto.CloneOf(node)
	for _, role := range node.GetRoles() {
		role.Values = nil
	}
	return node
}

// knows reports whether there are records of the same nodes as before.
func (d *directory) knows(state *store.State) bool {
	if len(d.ids) != len(state.Nodes) {
		return false
	}
	for _, id := range d.ids {
		if state.Nodes[id] == nil {
			return false
		}
	}
	return true
}

// nodeOf makes a node of the directory; nil: it is no member.
func nodeOf(id string, from sources) *hostv1.DirectoryNode {
	record, status := from.record, from.status
	if !IsMember(record) {
		return nil
	}
	node := &hostv1.DirectoryNode{
		NodeId:    id,
		Addresses: status.GetAddresses(),
		Healthy:   from.alive,
		Labels:    record.GetLabels(),
		Assigned:  &hostv1.AssignedRoles{},
	}
	for _, assignment := range record.GetRoles() {
		node.Assigned.Roles = append(node.Assigned.Roles, assignment.GetRole())
	}
	slices.Sort(node.Assigned.Roles)
	// Nothing but an address takes room in everybody's directory.
	if address, err := netip.ParseAddrPort(status.GetApiAddress()); err == nil && address.Addr().Zone() == "" {
		node.ApiAddress = status.GetApiAddress()
	}
	for _, instance := range status.GetInstances() {
		// A node says what it likes of itself: it is shown with the roles that it was given only.
		if !slices.ContainsFunc(record.GetRoles(), func(assignment *clusterv1.RoleAssignment) bool { return assignment.GetRole() == instance.GetRole() }) {
			continue
		}
		node.Roles = append(node.Roles, &hostv1.DirectoryRole{
			Role:      instance.GetRole(),
			State:     instance.GetState(),
			Endpoints: instance.GetEndpoints(),
			Values:    instance.GetValues(),
		})
	}
	slices.SortFunc(node.Roles, func(a, b *hostv1.DirectoryRole) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	publish(node, from.room)
	return node
}

// minRoom is how much of the directory what a node publishes may take in however large a cluster, in bytes: where its curator is.
const minRoom = 1 << 10

// Room is how much of the directory what a node publishes may take in a state of the cluster, in bytes: all of them together are sent to every role that follows the directory, in one
// message. Only members are in it. It is their share, in steps of an eighth or less: one node that comes
// or goes takes little from the others, and mostly nothing, since it is every node's that changes.
func Room(state *store.State) int {
	members := 0
	for _, node := range state.Nodes {
		if IsMember(node) {
			members++
		}
	}
	return room(members)
}

func room(members int) int {
	room := min(limits.ReportedPublished, limits.DirectoryPublished/max(members, 1))
	step := 1 << max(0, bits.Len(uint(room))-4)
	return max(minRoom, room/step*step)
}

// IsMember reports whether a node is in the directory: a tombstone is not, nor a machine that waits.
func IsMember(node *clusterv1.NodeRecord) bool {
	return node.GetState() == clusterv1.NodeState_NODE_STATE_UP || node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
}

// publish takes what is published out of a node of the directory until it has room, by the rule of its core (core/cluster): the values of a role that has more than a role may, then the values of the
// roles that have most of them, and then endpoints in the same way. The core says so to those who look after the roles, and has left it out itself, unless the cluster has just grown, or it is an older
// one: a report is never refused for it, since its node would be silent for what one role says.
func publish(node *hostv1.DirectoryNode, room int) {
	values := func(role *hostv1.DirectoryRole) int {
		return proto.Size(&hostv1.DirectoryRole{Values: role.GetValues()})
	}
	endpoints := func(role *hostv1.DirectoryRole) int {
		return proto.Size(&hostv1.DirectoryRole{Endpoints: role.GetEndpoints()})
	}
	total := 0
	for _, role := range node.GetRoles() {
		if values(role)+endpoints(role) > limits.Published {
			role.Values = nil
		}
		total += values(role) + endpoints(role)
	}
	leaveOut := func(size func(*hostv1.DirectoryRole) int, clear func(*hostv1.DirectoryRole)) {
		most := slices.Clone(node.GetRoles())
		slices.SortFunc(most, func(a, b *hostv1.DirectoryRole) int {
			return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(b.GetRole(), a.GetRole()))
		})
		for _, role := range most {
			if total <= room {
				return
			}
			total -= size(role)
			clear(role)
		}
	}
	leaveOut(values, func(role *hostv1.DirectoryRole) { role.Values = nil })
	leaveOut(endpoints, func(role *hostv1.DirectoryRole) { role.Endpoints = nil })
}
