package fakecluster

import (
	"context"
	"crypto/ed25519"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// enrolment takes machines into the cluster.
type enrolment struct {
	clusterv1.UnimplementedEnrolmentServiceServer
	cluster *Cluster
}

func (e *enrolment) Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	c, key := e.cluster, callerOf(ctx).key
	address := ""
	if from, ok := peer.FromContext(ctx); ok {
		address = from.Addr.String()
	}
	node, err := c.find(identity.NodeID(key))
	if err != nil {
		with, err := c.spend(request.GetTicketId(), request.GetTicketSecret())
		if err != nil {
			return nil, err
		}
		node = c.newcomer(key, with, request, address)
	}
	return &clusterv1.RegisterResponse{Node: node.GetRecord(), CaCertificates: [][]byte{c.authority.certificate.Raw}}, nil
}

// newcomer makes the record of a machine. The cluster is locked.
func (c *Cluster) newcomer(key ed25519.PublicKey, with *clusterv1.Ticket, request *clusterv1.RegisterRequest, address string) *clusterv1.Node {
	labels := make(map[string]string)
	for _, from := range []map[string]string{request.GetLabels(), with.GetLabels()} {
		for name, value := range from {
			labels[name] = value
		}
	}
	record := &clusterv1.NodeRecord{
		Id: identity.NodeID(key), PublicKey: key, State: clusterv1.NodeState_NODE_STATE_NEW, Labels: labels, Generation: 1, Created: timestamppb.New(Began), Since: timestamppb.New(Began),
		Registration: &clusterv1.Registration{
			TicketId: with.GetId(), PeerAddress: address, Addresses: request.GetAddresses(), Version: request.GetVersion(), Sealer: request.GetSealer(),
			Volume: request.GetVolume(), Roles: request.GetRoles(), Time: timestamppb.New(Began), Automatic: with.GetAutoApprove(),
		},
	}
	if with.GetAutoApprove() {
		record.State, record.Roles = clusterv1.NodeState_NODE_STATE_STANDBY, request.GetRoles()
	}
	node := &clusterv1.Node{Record: record}
	c.nodes = append(c.nodes, node)
	return node
}

// Newcomer has a machine register that nobody has approved.
func (c *Cluster) Newcomer(key ed25519.PublicKey, address string, labels map[string]string, roles ...string) {
	request := &clusterv1.RegisterRequest{Version: "0.1.0", Sealer: "tpm2", Volume: "luks", Addresses: []string{"192.0.2.20"}, Labels: labels}
	for _, role := range roles {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	c.Update(func() { c.newcomer(key, &clusterv1.Ticket{Id: "0123456789abcdef"}, request, address) })
}

func (e *enrolment) Await(_ *clusterv1.AwaitRequest, stream grpc.ServerStreamingServer[clusterv1.AwaitResponse]) error {
	c := e.cluster
	who, err := newcomer(stream.Context())
	if err != nil {
		return err
	}
	id := identity.NodeID(who.key)
	return c.watch(stream.Context(), func() error {
		node, err := c.find(id)
		if err != nil {
			return err
		}
		return stream.Send(&clusterv1.AwaitResponse{State: node.GetRecord().GetState(), Curators: []string{c.curator}})
	})
}

func (e *enrolment) Commit(ctx context.Context, _ *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	c := e.cluster
	id := identity.NodeID(callerOf(ctx).key)
	node, err := c.find(id)
	if err != nil {
		return nil, err
	}
	record := node.GetRecord()
	record.State, node.Healthy = clusterv1.NodeState_NODE_STATE_UP, true
	node.Status = &clusterv1.NodeStatus{
		NodeId: id, Addresses: record.GetRegistration().GetAddresses(), Isolation: clusterv1.Isolation_ISOLATION_OWN_UID, Volume: record.GetRegistration().GetVolume(),
		Version: record.GetRegistration().GetVersion(), Reported: timestamppb.New(Began),
	}
	for _, role := range record.GetRoles() {
		node.Status.Instances = append(node.Status.Instances, ready(id, role.GetRole()))
	}
	if slices.ContainsFunc(record.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == "consensus" }) {
		node.Store = &clusterv1.StoreMembership{MemberId: id[len(id)-16:]}
	}
	return &clusterv1.CommitResponse{
		Node: record, CaCertificates: [][]byte{c.authority.certificate.Raw}, Curators: []string{c.curator}, OwnerPublicKey: c.owner,
	}, nil
}

// ready is the status of an instance that is as it should be.
func ready(id, role string) *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{
		Role: role, InstanceId: id + "/" + role + "/1", State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 4711, Since: timestamppb.New(Began), ConfigurationGeneration: 1,
	}
}
