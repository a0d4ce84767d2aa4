package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Who proves nothing cannot have the curator hold more than one large request for each connection, however many calls he makes; who was let in may go on.
func TestStrangersSendLittle(t *testing.T) {
	c := newCluster(t)
	large := &clusterv1.AddPluginRequest{Manifest: plugin("x", &rolev1.RoleManifest{Name: "x", Summary: strings.Repeat("x", 1<<20)}), Digests: digests}
	stranger, owner := c.as(selfSigned(t, newKey(t))), c.asOwner()
	for n := range 5 {
		_, err := owner.AddPlugin(t.Context(), large)
		wantCode(t, err, codes.InvalidArgument)
		want := codes.Unauthenticated
		if n == 2 {
			want = codes.Unavailable // the connection was closed; the next call makes another one
		}
		if _, err = stranger.AddPlugin(t.Context(), large); status.Code(err) != want {
			t.Errorf("call %d of 1 MiB: %v, want %s", n+1, err, want)
		}
	}
}

// Many may call from one address, once they were let in.
func TestManyFromOneAddress(t *testing.T) {
	c := newCluster(t)
	certificate := c.ownerSession()
	for range 100 {
		if _, err := c.as(certificate).GetClusterInfo(inTime(t), &clusterv1.GetClusterInfoRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls that never end of those who proved nothing are few on a connection, which is closed where more are begun; others are served meanwhile.
func TestStrangersHaveFewCallsAtOnce(t *testing.T) {
	c := newCluster(t)
	conn := c.dial(c.curator, selfSigned(t, newKey(t)))
	ended := make(chan error, 33)
	for range cap(ended) {
		stream, err := conn.NewStream(inTime(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, clusterv1.ManagementService_AddPlugin_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- stream.RecvMsg(new(clusterv1.AddPluginResponse)) }() // waits for its request, until its connection is closed
	}
	for range cap(ended) {
		wantCode(t, <-ended, codes.Unavailable)
	}
	if _, err := c.asOwner().ListNodes(inTime(t), &clusterv1.ListNodesRequest{}); err != nil {
		t.Error(err)
	}
}

// A compressed request is refused, although this program is linked with a compressor, for etcd.
func TestNothingIsCompressed(t *testing.T) {
	c := newCluster(t)
	_, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: strings.Repeat("x", 1000)}, grpc.UseCompressor(gzip.Name))
	wantCode(t, err, codes.Internal, "no compressed requests")
}

// What is complete of somebody's requests is not held against them, also while another one never ends.
func TestCompleteRequestsAreNotHeld(t *testing.T) {
	c := newCluster(t)
	conn := c.dial(c.curator, selfSigned(t, c.owner))
	if _, err := conn.NewStream(inTime(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, clusterv1.ManagementService_AddPlugin_FullMethodName); err != nil {
		t.Fatal(err)
	}
	large := &clusterv1.AddPluginRequest{Manifest: plugin("x", &rolev1.RoleManifest{Name: "x", Summary: strings.Repeat("x", 1<<20)}), Digests: digests}
	for range 20 {
		_, err := clusterv1.NewManagementServiceClient(conn).AddPlugin(t.Context(), large)
		wantCode(t, err, codes.InvalidArgument)
	}
}
