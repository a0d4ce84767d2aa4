package worker

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func controllerOn(node string, healthy bool, server string, values map[string]string) *hostv1.DirectoryNode {
	return &hostv1.DirectoryNode{NodeId: node, Healthy: healthy, Roles: []*hostv1.DirectoryRole{
		{Role: "kubernetes-pki", Endpoints: []*rolev1.Endpoint{{Name: "pki", Address: "192.0.2.9:1"}}},
		{Role: "kubernetes-controller", Endpoints: []*rolev1.Endpoint{{Name: "kubernetes-api", Address: server}}, Values: values},
	}}
}

func TestWhatTheDirectorySays(t *testing.T) {
	said := map[string]string{"service-cidrs": "10.96.0.0/16,fd00:96::/112", "pod-cidrs": "10.244.0.0/16", "cluster-domain": "cluster.local", "dns-addresses": "10.96.0.10"}
	other := map[string]string{"service-cidrs": "10.97.0.0/16", "pod-cidrs": "10.245.0.0/16", "cluster-domain": "cluster.other"}
	directory := &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
		controllerOn("c", true, "https://192.0.2.3:6443", other), controllerOn("a", false, "https://192.0.2.1:6443", map[string]string{"cluster-domain": "half"}),
		controllerOn("b", true, "https://192.0.2.2:6443", said),
	}}
	found, ok := clusterOf(directory)
	if !ok || found.domain != "cluster.local" || texts(found.services) != said["service-cidrs"] || texts(found.pods) != "10.244.0.0/16" || !cmp.Equal(found.dns, []string{"10.96.0.10"}) {
		t.Errorf("the cluster is %+v", found)
	}
	if servers := serversOf(directory); !cmp.Equal(servers, []string{"192.0.2.2:6443", "192.0.2.3:6443"}) {
		t.Errorf("the servers are %v", servers)
	}
	for _, node := range directory.Nodes {
		node.Healthy = false
	}
	if servers := serversOf(directory); len(servers) != 3 {
		t.Errorf("of nodes that are all unwell the servers are %v", servers)
	}
	if _, ok := clusterOf(nil); ok || len(serversOf(nil)) != 0 {
		t.Error("no directory says something")
	}
}

func TestPeers(t *testing.T) {
	worker := func(node, address, pods string) *hostv1.DirectoryNode {
		return &hostv1.DirectoryNode{NodeId: node, Addresses: []string{address, "192.0.2.99"}, Roles: []*hostv1.DirectoryRole{{Role: "kubernetes-worker", Values: map[string]string{"pod-cidrs": pods}}}}
	}
	directory := &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
		worker("self", "192.0.2.1", "10.244.0.0/24"), worker("a", "192.0.2.2", "10.244.1.0/24,fd00::/64"), worker("none", "192.0.2.3", ""), worker("odd", "host", "10.244.2.0/24"),
		worker("bad", "192.0.2.4", "x"), {NodeId: "nowhere"},
	}}
	want := []podnet.Peer{{NodeID: "a", Address: netip.MustParseAddr("192.0.2.2"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00::/64")}}}
	if got := peersOf(directory, "self", make(map[string][]netip.Prefix)); !cmp.Equal(got, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
		t.Errorf("the peers are %v", got)
	}
}

// TestPeersThatSayNothing: the role of a node that is being started says nothing, and the node's pods run.
func TestPeersThatSayNothing(t *testing.T) {
	said := &hostv1.DirectoryNode{
		NodeId: "a", Addresses: []string{"192.0.2.2"}, Assigned: &hostv1.AssignedRoles{Roles: []string{"kubernetes-worker"}},
		Roles: []*hostv1.DirectoryRole{{Role: "kubernetes-worker", Values: map[string]string{"pod-cidrs": "10.244.1.0/24"}}},
	}
	silent := &hostv1.DirectoryNode{NodeId: "a", Addresses: []string{"192.0.2.3"}, Assigned: said.Assigned}
	gone := &hostv1.DirectoryNode{NodeId: "a", Addresses: []string{"192.0.2.3"}, Assigned: &hostv1.AssignedRoles{}}
	last := make(map[string][]netip.Prefix)
	for n, step := range []struct {
		node *hostv1.DirectoryNode
		want string
	}{{silent, ""}, {said, "192.0.2.2 10.244.1.0/24"}, {silent, "192.0.2.3 10.244.1.0/24"}, {gone, ""}, {silent, ""}} {
		got := ""
		for _, peer := range peersOf(&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{step.node}}, "self", last) {
			got += peer.Address.String() + " " + texts(peer.Pods)
		}
		if got != step.want {
			t.Errorf("step %d: the peers are %q, want %q", n, got, step.want)
		}
	}
}
