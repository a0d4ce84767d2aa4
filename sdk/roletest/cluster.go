package roletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Cluster is a set of hosts with one directory and one CA. What roles on them publish appears in the directory at once.
type Cluster struct {
	authority *Authority

	mu       sync.Mutex
	hosts    []*Host
	members  []*member
	revision uint64
}

// member is a node in the directory.
type member struct {
	host  *Host
	split bool
	gone  bool
	roles map[string]*hostv1.DirectoryRole
	// assigned are the roles that had an instance and were not withdrawn.
	assigned map[string]bool
}

// NewCluster serves n hosts until the test ends, each on a node that is Home. Their addresses are on the loopback interface.
func NewCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	return NewClusterIn(t, "/tmp", n)
}

// NewClusterIn is NewCluster with the hosts' sockets below an existing directory. Its path must be short, because socket paths are limited to 107
// bytes.
func NewClusterIn(t testing.TB, directory string, n int) *Cluster {
	t.Helper()
	authority, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{authority: authority}
	for number := range n {
		host := newHost(t, directory, nodeIDOf(number), authority, c)
		host.Network.Set([]string{address(number)})
		host.Membership.Set(host.membership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "member of the test's cluster"))
		c.hosts = append(c.hosts, host)
		c.members = append(c.members, &member{host: host, roles: make(map[string]*hostv1.DirectoryRole), assigned: make(map[string]bool)})
	}
	c.change(func(*member) {})
	return c
}

// nodeIDOf returns the ID of a node by its number. Its hexadecimal digits are a machine ID, as for every node.
func nodeIDOf(number int) string {
	return fmt.Sprintf("reeve-000102030405060708090a0b0c0d%04x", 0x0e0f+number)
}

// address returns a node's own loopback address.
func address(number int) string { return fmt.Sprintf("127.0.%d.%d", number/250, number%250+1) }

// Host returns the host of a node, counted from 0.
func (c *Cluster) Host(n int) *Host { return c.hosts[n] }

// Authority is the cluster's CA.
func (c *Cluster) Authority() *Authority { return c.authority }

// Remove removes a host's node from the directory, as the cluster does. The host is still served.
func (c *Cluster) Remove(host *Host) {
	c.change(func(m *member) { m.gone = m.gone || m.host == host })
}

// Withdraw takes a role from a host's node, as the cluster does before the node stops it. Its instance is still served.
func (c *Cluster) Withdraw(host *Host, role string) {
	c.change(func(m *member) {
		if m.host == host {
			delete(m.assigned, role)
			delete(m.roles, role)
		}
	})
}

// change changes the members and publishes the directory to all hosts that are not cut off.
func (c *Cluster) change(change func(*member)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	directory := &hostv1.Directory{Revision: c.revision}
	for number, m := range c.members {
		change(m)
		if m.gone {
			continue
		}
		node := &hostv1.DirectoryNode{
			NodeId: m.host.nodeID, Addresses: []string{address(number)}, Healthy: !m.split,
			Assigned: &hostv1.AssignedRoles{Roles: slices.Sorted(maps.Keys(m.assigned))},
		}
		for _, name := range slices.Sorted(maps.Keys(m.roles)) {
			node.Roles = append(node.Roles, m.roles[name])
		}
		directory.Nodes = append(directory.Nodes, node)
	}
	for _, m := range c.members {
		if !m.split {
			m.host.Directory.Set(directory)
		}
	}
}

// Split cuts the host's node off from its cluster: its roles are told, get no SVIDs and no changes of the directory, and lose the store, unless a
// role that Process.Start started here keeps it by its manifest. The test itself stops a role that must be stopped in Split (Process.StopFor).
func (h *Host) Split() { h.cutOff(true) }

// Rejoin ends Split.
func (h *Host) Rejoin() { h.cutOff(false) }

func (h *Host) cutOff(split bool) {
	h.mu.Lock()
	h.split = split
	h.mu.Unlock()
	if split {
		h.Membership.Set(h.membership(hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT, "cut off by the test"))
	} else {
		h.Membership.Set(h.membership(hostv1.MembershipState_MEMBERSHIP_STATE_HOME, "member of the test's cluster"))
	}
	h.changeStore(func(s *storeGate) { s.split = split })
	if h.cluster != nil {
		h.cluster.change(func(m *member) {
			if m.host == h {
				m.split = split
			}
		})
	}
}

func (h *Host) membership(state hostv1.MembershipState, reason string) *hostv1.Membership {
	return &hostv1.Membership{
		State: state, Reason: reason, NodeId: h.nodeID, ClusterId: h.authority.cluster, TrustDomain: h.authority.domain,
	}
}

// assign assigns a role to the host's node.
func (h *Host) assign(role string) {
	if h.cluster == nil {
		return
	}
	h.cluster.change(func(m *member) {
		if m.host == h {
			m.assigned[role] = true
		}
	})
}

// report publishes a role's status to the cluster; nil: the role is gone.
func (h *Host) report(role string, told *rolev1.WatchResponse) {
	if h.cluster == nil {
		return
	}
	h.cluster.change(func(m *member) {
		switch {
		case m.host != h:
		case told == nil || !m.assigned[role]:
			delete(m.roles, role)
		default:
			state := hostv1.InstanceState_value["INSTANCE"+strings.TrimPrefix(told.GetState().String(), "ROLE")]
			m.roles[role] = &hostv1.DirectoryRole{
				Role: role, State: hostv1.InstanceState(state), Values: maps.Clone(told.GetValues()),
				Endpoints: proto.CloneOf(told).GetEndpoints(),
			}
		}
	})
}
