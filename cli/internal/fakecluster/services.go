package fakecluster

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// management is the cluster API.
type management struct {
	clusterv1.UnimplementedManagementServiceServer
	cluster *Cluster
}

// ListNodes answers who knows pages with a few nodes at a time, so that whoever asks for all has to ask for the next page.
func (m *management) ListNodes(_ context.Context, request *clusterv1.ListNodesRequest) (*clusterv1.ListNodesResponse, error) {
	most := len(m.cluster.nodes)
	if request.GetLimit() > 0 {
		most = 2
	}
	response := &clusterv1.ListNodesResponse{}
	nodes := slices.SortedFunc(slices.Values(m.cluster.nodes), func(a, b *clusterv1.Node) int { return strings.Compare(a.GetRecord().GetId(), b.GetRecord().GetId()) })
	for _, node := range nodes {
		switch {
		case node.GetRecord().GetId() <= request.GetAfter():
		case len(response.GetNodes()) == most:
			response.More = true
		default:
			response.Nodes = append(response.Nodes, m.cluster.seen(node))
		}
	}
	return response, nil
}

func (m *management) GetNode(_ context.Context, request *clusterv1.GetNodeRequest) (*clusterv1.GetNodeResponse, error) {
	node, err := m.cluster.find(request.GetNodeId())
	return &clusterv1.GetNodeResponse{Node: m.cluster.seen(node)}, err
}

func (m *management) WatchNode(request *clusterv1.WatchNodeRequest, stream grpc.ServerStreamingServer[clusterv1.WatchNodeResponse]) error {
	m.cluster.Update(func() { m.cluster.watchers++ })
	defer m.cluster.Update(func() { m.cluster.watchers-- })
	return m.cluster.watch(stream.Context(), func() error {
		node, err := m.cluster.find(request.GetNodeId())
		if err != nil {
			return err
		}
		return stream.Send(&clusterv1.WatchNodeResponse{Node: proto.CloneOf(node)})
	})
}

func (m *management) AddRole(_ context.Context, request *clusterv1.AddRoleRequest) (*clusterv1.AddRoleResponse, error) {
	c := m.cluster
	node, err := c.find(request.GetNodeId())
	if err != nil {
		return nil, err
	}
	if c.offered(request.GetRole()) == nil {
		if plugin := c.waiting(request.GetRole()); plugin != "" {
			return nil, status.Errorf(codes.FailedPrecondition, "plugin %s waits for approval: `reeve plugin approve %s`", plugin, plugin)
		}
		return nil, status.Errorf(codes.NotFound, "no plugin of the catalog offers role %s", request.GetRole())
	}
	if strings.Contains(request.GetConfiguration(), "wrong") {
		return nil, status.Error(codes.InvalidArgument, "/wrong: is not allowed")
	}
	if err := c.required(node, request.GetRole()); err != nil {
		return nil, err
	}
	configuration := request.GetConfiguration()
	if request.GetKeepConfiguration() {
		for _, role := range node.GetRecord().GetRoles() {
			if role.GetRole() == request.GetRole() {
				configuration = role.GetConfiguration()
			}
		}
	}
	if request.GetDryRun() {
		record := proto.CloneOf(node.GetRecord())
		give(record, request.GetRole(), configuration)
		return &clusterv1.AddRoleResponse{Node: record}, nil
	}
	c.assign(node, request.GetRole(), configuration)
	return &clusterv1.AddRoleResponse{Node: node.GetRecord()}, nil
}

func (m *management) RemoveRole(_ context.Context, request *clusterv1.RemoveRoleRequest) (*clusterv1.RemoveRoleResponse, error) {
	if request.GetRole() == "curator" {
		return nil, status.Error(codes.FailedPrecondition, "it is the last role that provides reeve.cluster.v1")
	}
	node, err := m.cluster.find(request.GetNodeId())
	if err != nil {
		return nil, err
	}
	record := proto.CloneOf(node.GetRecord())
	record.Roles = slices.DeleteFunc(record.Roles, func(role *clusterv1.RoleAssignment) bool { return role.GetRole() == request.GetRole() })
	if len(record.Roles) == len(node.GetRecord().GetRoles()) {
		return nil, status.Errorf(codes.NotFound, "node %s does not have role %s", request.GetNodeId(), request.GetRole())
	}
	if !request.GetDryRun() {
		if request.GetWipe() {
			record.WipedRoles = append(record.WipedRoles, request.GetRole())
		}
		node.Record = record
		report(node, request.GetRole(), nil)
	}
	return &clusterv1.RemoveRoleResponse{Node: record}, nil
}

func (m *management) ListPlugins(context.Context, *clusterv1.ListPluginsRequest) (*clusterv1.ListPluginsResponse, error) {
	return &clusterv1.ListPluginsResponse{Plugins: m.cluster.plugins}, nil
}

// node is the own API of a node.
type node struct {
	nodev1.UnimplementedNodeServiceServer
	cluster *Cluster
	// id is that of the node; empty: the first one.
	id string
	// served is the volume's when the local socket was served.
	served int
}

func (n *node) status() *nodev1.Status {
	s := &nodev1.Status{
		Membership: proto.CloneOf(n.cluster.member),
		Cluster: &nodev1.ClusterAccess{
			ClusterId: n.cluster.id, CaCertificates: [][]byte{n.cluster.authority.certificate.Raw}, Curators: n.cluster.curators(),
		},
		CoreStart: Began.UnixNano(),
	}
	for i, node := range n.cluster.nodes {
		if node.GetRecord().GetId() == n.id || (n.id == "" && i == 0) {
			s.NodeId = node.GetRecord().GetId()
			s.Node = proto.CloneOf(node.GetStatus())
			s.Store = proto.CloneOf(n.cluster.side.store)
			if i == 0 {
				n.cluster.volume.describe(s)
			}
		}
	}
	return s
}

func (n *node) GetStatus(context.Context, *nodev1.GetStatusRequest) (*nodev1.GetStatusResponse, error) {
	return &nodev1.GetStatusResponse{Status: n.status()}, nil
}

func (n *node) WatchStatus(_ *nodev1.WatchStatusRequest, stream grpc.ServerStreamingServer[nodev1.WatchStatusResponse]) error {
	return n.cluster.watch(stream.Context(), func() error {
		if n.id == "" && n.served != n.cluster.volume.served {
			return status.Error(codes.Unavailable, "the node's own API is served anew")
		}
		return stream.Send(&nodev1.WatchStatusResponse{Status: n.status()})
	})
}
