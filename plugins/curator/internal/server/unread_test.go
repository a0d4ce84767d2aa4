package server_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// leaveUnread makes calls whose answers it does not read, until one is refused. It returns how many were not, and the refusal.
func leaveUnread(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string, request proto.Message) (answered int, refused error) {
	t.Helper()
	for ; answered < 256; answered++ {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
		if err == nil {
			err = call.SendMsg(request)
		}
		if err == nil {
			err = call.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		// What an answer begins with comes although it is not read, and with a refusal there is none.
		if begun, err := call.Header(); err != nil || len(begun) == 0 {
			return answered, call.RecvMsg(new(emptypb.Empty))
		}
	}
	return answered, nil
}

// largePlugins are four plugins with a role of the same name each, whose manifests have 1 MiB.
func (c *cluster) largePlugins() (names []string) {
	names = []string{"one", "two", "three", "four"}
	for _, name := range names {
		c.update(func(*store.State) *store.Change {
			return &store.Change{Plugins: []*clusterv1.PluginRecord{record(plugin(name, &rolev1.RoleManifest{Name: name, Summary: strings.Repeat("x", 1<<20)}))}}
		})
	}
	return names
}

// Who does not read their answers has 64 MiB of them on all of their connections. Others are served meanwhile, and they too when they have read, or are gone.
func TestUnreadAnswersOfACaller(t *testing.T) {
	c := newCluster(t)
	c.largePlugins()
	certificate := c.addOperator("vera", roleViewer).login()
	list := func(conn *grpc.ClientConn) error {
		_, err := clusterv1.NewManagementServiceClient(conn).ListPlugins(inTime(t), &clusterv1.ListPluginsRequest{}, grpc.MaxCallRecvMsgSize(limits.Message))
		return err
	}
	others := c.addOperator("victor", roleViewer).login()
	// Who reads may ask as often as they like.
	reads := c.dial(c.curator, certificate)
	for range 30 {
		if err := list(reads); err != nil {
			t.Fatal(err)
		}
	}
	full := func(conn *grpc.ClientConn) (answered int, giveUp func()) {
		t.Helper()
		ctx, giveUp := context.WithCancel(inTime(t))
		answered, err := leaveUnread(ctx, t, conn, clusterv1.ManagementService_ListPlugins_FullMethodName, new(clusterv1.ListPluginsRequest))
		wantCode(t, err, codes.ResourceExhausted, "operator vera", "64 MiB", "read the answers")
		wantCode(t, list(reads), codes.ResourceExhausted, "operator vera")
		return answered, giveUp
	}
	free := func() {
		t.Helper()
		err := list(reads)
		for ctx := inTime(t); err != nil && ctx.Err() == nil; {
			err = list(reads)
		}
		if err != nil {
			t.Errorf("when those are gone: %v", err)
		}
	}
	unread := c.dial(c.curator, certificate, grpc.WithStaticStreamWindowSize(64<<10)) // otherwise it grows
	answered, giveUp := full(unread)
	if answered != 15 {
		t.Errorf("%d answers of 4 MiB and some wait to be read", answered)
	}
	if err := list(c.dial(c.curator, others)); err != nil {
		t.Errorf("another viewer: %v", err)
	}
	if _, err := c.asNode().ReportStatus(inTime(t), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{}}); err != nil {
		t.Errorf("a node: %v", err)
	}
	giveUp()
	free()
	_, giveUp = full(unread) // some of those that were given up may still be held
	defer giveUp()
	if err := unread.Close(); err != nil {
		t.Fatal(err)
	}
	free()
}

// A node that does not read its watches has 64 MiB of what they are told, those among it that were ended since it opened more: gRPC keeps what was not read of them. Another node is told all of it
// meanwhile, and this one too when the connection is closed.
func TestUnreadWatchesOfANode(t *testing.T) {
	c := newCluster(t)
	names := c.largePlugins()
	key := c.secondNode(names...)
	other := identity.NodeID(public(key))
	c.update(func(state *store.State) *store.Change {
		node := proto.CloneOf(state.Nodes[c.id])
		node.Generation++
		node.Roles = append(node.Roles, state.Nodes[other].GetRoles()...)
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node}}
	})
	unread := c.dial(c.curator, c.svid, grpc.WithStaticStreamWindowSize(64<<10))
	answered, err := leaveUnread(inTime(t), t, unread, clusterv1.NodeService_Watch_FullMethodName, new(clusterv1.WatchRequest))
	wantCode(t, err, codes.ResourceExhausted, "node "+c.id, "64 MiB", "read the answers")
	if answered != 15 {
		t.Errorf("%d watches of 4 MiB and some wait to be read", answered)
	}
	told := func(as clusterv1.NodeServiceClient) error {
		watch, err := as.Watch(inTime(t), new(clusterv1.WatchRequest), grpc.MaxCallRecvMsgSize(limits.Message))
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	}
	if err := told(c.asOther(key)); err != nil {
		t.Errorf("another node: %v", err)
	}
	wantCode(t, told(c.asNode()), codes.ResourceExhausted, c.id)
	if err := unread.Close(); err != nil {
		t.Fatal(err)
	}
	err = told(c.asNode())
	for ctx := inTime(t); err != nil && ctx.Err() == nil; {
		err = told(c.asNode())
	}
	if err != nil {
		t.Errorf("when those are gone: %v", err)
	}
}
