package target

import (
	"context"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// CuratorOf returns the cluster API as the curator of a node serves it: what is on the disk of that node no other one has.
func (t *Target) CuratorOf(ctx context.Context, node string) (clusterv1.ManagementServiceClient, error) {
	response, err := t.API().GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: node})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot read where the curator of node "+node+" is", "Run `reeve node list` to see the nodes.")
	}
	addresses := curatorsOf(response.GetNode())
	if len(addresses) == 0 {
		return nil, fault.New(fault.Unreachable, "node "+node+" serves no cluster API now", "Start its curator: `reeve describe node "+node+"` shows how it is.")
	}
	conn, err := t.dialCurators(addresses, t.trust, t.advice())
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no connection to the curator of node "+node+" can be made", "")
	}
	t.others = append(t.others, conn)
	return clusterv1.NewManagementServiceClient(conn), nil
}
