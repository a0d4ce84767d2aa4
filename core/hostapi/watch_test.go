package hostapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/membership"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// receiver is the client's side of any of the streams.
type receiver[M any] interface{ Recv() (*M, error) }

// next receives a message and compares it.
func next[M any](t *testing.T, stream receiver[M], want *M) {
	t.Helper()
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("the message differs (-want +got):\n%s", diff)
	}
}

func TestWatchMembership(t *testing.T) {
	n := newNode(t, nil)
	since := time.Unix(1_700_000_000, 5)
	n.membership.Set(membership.Status{State: membership.Unknown, Reason: "starting"})
	stream, err := n.client(remitOf("role.1")).WatchMembership(within(t), &hostv1.WatchMembershipRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next(t, stream, &hostv1.WatchMembershipResponse{Membership: &hostv1.Membership{State: membership.Unknown, Reason: "starting"}})
	// A value that is set again without a change is no news.
	n.membership.Set(membership.Status{State: membership.Unknown, Reason: "starting"})
	n.membership.Set(membership.Status{State: membership.Home, Reason: "r", Since: since, NodeID: "n", ClusterID: "c", TrustDomain: "c.reeve"})
	next(t, stream, &hostv1.WatchMembershipResponse{Membership: &hostv1.Membership{
		State: membership.Home, Reason: "r", Since: timestamppb.New(since), NodeId: "n", ClusterId: "c", TrustDomain: "c.reeve",
	}})
}

func TestWatchDirectoryAndNetwork(t *testing.T) {
	n := newNode(t, nil)
	client := n.client(remitOf("role.1"))
	directory, err := client.WatchDirectory(within(t), &hostv1.WatchDirectoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	network, err := client.WatchNetwork(within(t), &hostv1.WatchNetworkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is known at first: the streams wait, and begin with what is set then.
	for revision := range uint64(3) {
		now := &hostv1.Directory{Revision: revision, Nodes: []*hostv1.DirectoryNode{{NodeId: "n", Addresses: []string{"192.0.2.1"}}}}
		n.directory.Set(now)
		next(t, directory, &hostv1.WatchDirectoryResponse{Directory: now})
	}
	for _, addresses := range [][]string{{"192.0.2.1", "2001:db8::1"}, {"192.0.2.2"}, nil} {
		n.network.Set(addresses)
		next(t, network, &hostv1.WatchNetworkResponse{Addresses: addresses})
	}
	n.peers.Set([]string{"db.example"})
	next(t, network, &hostv1.WatchNetworkResponse{Peers: []string{"db.example"}})
	n.network.Set([]string{"192.0.2.3"})
	next(t, network, &hostv1.WatchNetworkResponse{Addresses: []string{"192.0.2.3"}, Peers: []string{"db.example"}})
	// The machines of curators come after those that were named, each once.
	n.curators.Set([]string{"[2001:db8::4]:7443", "192.0.2.4:7443", "db.example:7443", "192.0.2.4:7543"})
	next(t, network, &hostv1.WatchNetworkResponse{Addresses: []string{"192.0.2.3"}, Peers: []string{"db.example", "2001:db8::4", "192.0.2.4"}})
}

// TestWatchOperators: a role that is granted it hears who operates the cluster, and nothing before the node knows.
func TestWatchOperators(t *testing.T) {
	n := newNode(t, nil)
	stream, err := n.client(remitOf("role.1", &rolev1.Grant{Name: "watch-operators"})).WatchOperators(within(t), &hostv1.WatchOperatorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []*hostv1.Operators{
		{OwnerKeyId: "0123"},
		{OwnerKeyId: "0123", Operators: []*hostv1.Operator{{Name: "alice", Id: "1", Role: hostv1.OperatorRole_OPERATOR_ROLE_VIEWER}}},
	} {
		n.operators.Set(now)
		next(t, stream, &hostv1.WatchOperatorsResponse{Operators: now})
	}
}

// TestOpenConsensus: an instance is answered at once and hears only of itself.
func TestOpenConsensus(t *testing.T) {
	n := newNode(t, nil)
	remit := remitOf("role.1")
	remit.Manifest.ConsensusUser = "user"
	stream, err := n.client(remit).OpenConsensus(within(t), &hostv1.OpenConsensusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.GetUnavailable().GetReason() != hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING || first.GetUnavailable().GetMessage() == "" {
		t.Fatalf("the first answer is %v (%v)", first, err)
	}
	open := func(socket string) *hostv1.OpenConsensusResponse {
		return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{
			Socket: socket, ConsensusUser: "user", Prefix: "/reeve/users/user/",
		}}}
	}
	other := nodeID + "/role/2"
	n.access.Set(access.States{other: open("/other")})
	n.access.Set(access.States{other: open("/other"), remit.InstanceID: open("/own")})
	next(t, stream, open("/own"))
	n.access.Set(access.States{remit.InstanceID: open("/own")})
	notMember := &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{Unavailable: &hostv1.ConsensusUnavailable{
		Reason: hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER, Message: "Split",
	}}}
	n.access.Set(access.States{remit.InstanceID: notMember})
	next(t, stream, notMember)
}
