package main

import (
	"context"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

// network is how the role reaches the same role of other nodes: by the SVIDs of both.
type network struct{ host *role.Host }

var _ service.Network = network{}

// Listen implements service.Network.
func (n network) Listen(ctx context.Context) (net.Listener, error) {
	return n.host.Listen(ctx, consensusv1.PeerEndpoint)
}

// Dial implements service.Network.
func (n network) Dial(ctx context.Context, node string) (net.Conn, error) {
	return n.host.Dial(ctx, n.host.Role(), node, consensusv1.PeerEndpoint)
}

// Credentials implements service.Network.
func (network) Credentials() credentials.TransportCredentials { return role.Credentials() }

// Caller implements service.Network.
func (n network) Caller(ctx context.Context) (node string, ok bool) {
	peer, ok := role.PeerFromContext(ctx)
	return peer.NodeID, ok && peer.Role == n.host.Role()
}

// Nodes implements service.Network.
func (n network) Nodes() []string {
	directory, _ := n.host.Directory().Get()
	return n.serving(directory)
}

// Follows implements service.Network.
func (n network) Follows() (store.Generation, bool) {
	directory, _ := n.host.Directory().Get()
	return store.Generation{Number: directory.GetStoreGeneration(), ID: directory.GetStoreGenerationId()}, directory != nil && directory.StoreGeneration != nil
}

// gone reports whether the cluster's directory is there and does not have a node.
func (n network) gone(node string) bool {
	directory, _ := n.host.Directory().Get()
	has := func(id string) bool {
		return slices.ContainsFunc(directory.GetNodes(), func(one *hostv1.DirectoryNode) bool { return one.GetNodeId() == id })
	}
	return has(n.host.NodeID()) && !has(node)
}

// await returns as soon as there are Nodes, or ctx is done.
func (n network) await(ctx context.Context) {
	_, _ = n.host.Directory().Wait(ctx, func(directory *hostv1.Directory) bool { return len(n.serving(directory)) > 0 })
}

func (n network) serving(directory *hostv1.Directory) []string {
	var nodes []string
	for _, node := range directory.GetNodes() {
		if node.GetNodeId() == n.host.NodeID() {
			continue
		}
		for _, running := range node.GetRoles() {
			if running.GetRole() != n.host.Role() {
				continue
			}
			for _, endpoint := range running.GetEndpoints() {
				if endpoint.GetName() == consensusv1.PeerEndpoint {
					nodes = append(nodes, node.GetNodeId())
				}
			}
		}
	}
	return nodes
}

// Addresses implements service.Network.
func (n network) Addresses() *event.Value[[]string] { return n.host.Network() }

// Peers implements service.Network.
func (n network) Peers() []string {
	peers, _ := n.host.Peers().Get()
	return peers
}
