package target_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestNoMajorityNamesTheMissing has the only curator that answers be cut off from the majority of the store. By the local socket, and by a context that knows nodes, the members that are missing are named.
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
	r.playCurator(func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, "the consensus store did not let the curator read the nodes: etcdserver: no leader")
	}))
	r.member = &consensusv1.StoreStatus{Formed: true, Problem: "no leader: of its 3 members those of reeve-b, reeve-c do not answer; start these nodes"}
	socket := r.bySocket()
	socket.OwnerKeyFile = r.ownerKey
	for name, options := range map[string]target.Options{"by the socket": socket, "by a context": r.options()} {
		cluster, err := target.Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Close() })
		_, err = cluster.ListNodes(t.Context())
		want := "cannot list the nodes: the consensus store has no majority of its members, without which the cluster decides nothing: " + r.member.GetProblem()
		if fault.CodeOf(err) != fault.Unreachable || !strings.HasPrefix(err.Error(), want+". `reeve store status reeve-") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
