package target_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestNoMajorityNamesTheMissing has the only curator that answers be cut off from the store. By the local socket, and by a context that knows nodes, the members that are missing are named, unless a
// node says that the store has its majority.
func TestNoMajorityNamesTheMissing(t *testing.T) {
	r := newRig(t)
	r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	cluster := r.open()
	if err := list(t.Context(), cluster); err != nil { // from which the context knows the nodes
		t.Fatal(err)
	}
	if err := errors.Join(cluster.Close(), r.StopCurator()); err != nil {
		t.Fatal(err)
	}
	r.playCurator(func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		// As a curator does: a client that is answered before it has sent its request sees EOF.
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the consensus store did not let the curator read the nodes: etcdserver: no leader")
	}))
	with, without := &consensusv1.StoreStatus{Formed: true, Quorum: true}, &consensusv1.StoreStatus{Formed: true, Problem: "no leader: those of reeve-b, reeve-c do not answer"}
	begins := &consensusv1.StoreStatus{Problem: "role consensus is Failed: it fell"}
	curators := "the consensus store did not let the curator read the nodes"
	none := "the consensus store has no majority of its members, without which the cluster decides nothing: " + without.GetProblem()
	unformed := "the consensus store does not serve on node " + nodeA + ": role consensus is Failed"
	for name, test := range map[string]struct {
		a, b *consensusv1.StoreStatus
		// socket and context are what the error says, by the way to the cluster. ends says that it also ends a call that goes on.
		socket, context string
		ends            bool
	}{
		"no majority":                     {without, without, none, none, true},
		"one that says nothing":           {without, nil, none, none, true},
		"one that has not formed":         {begins, without, unformed, none, true},
		"none has formed":                 {begins, nil, unformed, unformed, false},
		"only one is cut off":             {without, with, none, curators, false},
		"only one is cut off, in context": {with, without, curators, curators, false},
	} {
		r.mu.Lock()
		r.members = map[string]*consensusv1.StoreStatus{nodeA: test.a, nodeB: test.b}
		r.mu.Unlock()
		socket := r.bySocket()
		socket.OwnerKeyFile = r.ownerKey
		for _, way := range []struct {
			name    string
			options target.Options
			want    string
		}{{"by the socket", socket, test.socket}, {"by a context", r.options(), test.context}} {
			cluster, err := target.Open(t.Context(), way.options)
			if err != nil {
				t.Fatal(err)
			}
			_, err = cluster.ListNodes(t.Context())
			advised := strings.Contains(fmt.Sprint(err), "`reeve store status reeve-")
			if fault.CodeOf(err) != fault.Unreachable || !strings.Contains(err.Error(), way.want) || advised != (way.want != curators) {
				t.Errorf("%s, %s: %v", name, way.name, err)
			}
			if way.name == "by a context" {
				if err := cluster.CutOff(t.Context(), false); (err != nil) != test.ends {
					t.Errorf("%s, of a call that goes on: %v", name, err)
				}
			}
			if err := cluster.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
