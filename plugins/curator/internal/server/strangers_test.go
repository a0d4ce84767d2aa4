package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
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

// Who is nobody is told so once on a connection for what it costs the store, and then from memory, and the connection ends.
func TestStrangersCostLittle(t *testing.T) {
	c := newCluster(t)
	conn := c.dial(c.curator, selfSigned(t, newKey(t)))
	stranger := clusterv1.NewManagementServiceClient(conn)
	refuse := func() error {
		_, err := stranger.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
		return err
	}
	wantCode(t, refuse(), codes.Unauthenticated, "neither that of a node")
	wantCode(t, refuse(), codes.Unauthenticated, "neither that of a node")
	// It ends although calls go on: the client finds that it has to connect anew.
	for state := conn.GetState(); state == connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(inTime(t), state) {
			t.Fatal("the connection stays")
		}
	}
}

// Calls that never end of those who proved nothing are few on a connection, and the rest of them is refused at once; nodes are served meanwhile, on however many streams.
func TestStrangersHaveFewCallsAtOnce(t *testing.T) {
	c := newCluster(t)
	conn := c.dial(c.curator, selfSigned(t, newKey(t)))
	refused := make(chan error, 40)
	for range cap(refused) {
		stream, err := conn.NewStream(inTime(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, clusterv1.ManagementService_AddPlugin_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		go func() { refused <- stream.RecvMsg(new(clusterv1.AddPluginResponse)) }() // what was let begin waits for its request
	}
	for range 8 {
		wantCode(t, <-refused, codes.ResourceExhausted, "32 calls", "on one connection")
	}
	_, err := clusterv1.NewManagementServiceClient(conn).ListNodes(inTime(t), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.ResourceExhausted, "on one connection")
	if len(refused) > 0 {
		t.Error("fewer than 32 were let begin")
	}
	if _, err := c.asOwner().ListNodes(inTime(t), &clusterv1.ListNodesRequest{}); err != nil {
		t.Error(err)
	}
}
