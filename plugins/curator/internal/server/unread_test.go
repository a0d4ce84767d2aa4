package server_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// leaveUnread makes calls whose answers it does not read, until one is refused. It returns how many were not, and the refusal.
func leaveUnread(ctx context.Context, t *testing.T, conn *grpc.ClientConn) (answered int, refused error) {
	t.Helper()
	for ; answered < 256; answered++ {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, clusterv1.ManagementService_ListPlugins_FullMethodName)
		if err == nil {
			err = call.SendMsg(new(clusterv1.ListPluginsRequest))
		}
		if err == nil {
			err = call.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		// What an answer begins with comes although it is not read, and with a refusal there is none.
		if begun, err := call.Header(); err != nil || len(begun) == 0 {
			return answered, call.RecvMsg(new(clusterv1.ListPluginsResponse))
		}
	}
	return answered, nil
}

// Who does not read their answers has 64 MiB of them on all of their connections. Others are served meanwhile, and they too when they have read, or are gone.
func TestUnreadAnswersOfACaller(t *testing.T) {
	c := newCluster(t)
	const size = 1 << 20
	for _, name := range []string{"one", "two", "three", "four"} {
		c.update(func(*store.State) *store.Change {
			return &store.Change{Plugins: []*clusterv1.PluginRecord{record(plugin(name, &rolev1.RoleManifest{Name: name, Summary: strings.Repeat("x", size)}))}}
		})
	}
	certificate := c.addOperator("vera", roleViewer).login()
	list := func(conn *grpc.ClientConn) error {
		_, err := clusterv1.NewManagementServiceClient(conn).ListPlugins(inTime(t), &clusterv1.ListPluginsRequest{}, grpc.MaxCallRecvMsgSize(8*size))
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
		answered, err := leaveUnread(ctx, t, conn)
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
