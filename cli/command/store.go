package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) store() *cobra.Command {
	return group("store", "The consensus store", c.storeStatus(), c.storeRecover(), c.storeRecoverQuorum(), c.storeSnapshot(), c.storeReplace())
}

func (c *commands) storeStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show the member of the consensus store on a node",
		Long: `status shows the member of the consensus store that runs on a node: its quorum, its members, the size of its database, and what keeps it from its
work.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			status, err := nodeStatus(ctx, cluster, optional(given))
			if err != nil {
				return err
			}
			store := status.GetStore()
			if store == nil {
				return fault.New(fault.NotFound, "no member of the consensus store runs on node "+status.GetNodeId(),
					"Run `reeve node list` to see which nodes have a role that provides it.")
			}
			return c.print(output.NodeStore{NodeID: status.GetNodeId(), Store: store})
		}),
	}
}

func (c *commands) storeRecover() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "recover [NODE]",
		Short: "Give a full store its room back",
		Long: `recover has the role that provides the store compact its history and defragment the database of its member on a node, and take writes again if there
is room now. The role does so by itself, too. It is refused, with who uses the room, if that frees none.`,
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			return c.recoverStore(ctx, api, node, dryRun)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

// recoverStore has no time limit of its own: how long a database takes depends on its size and on the disk.
func (c *commands) recoverStore(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, dryRun bool) error {
	response, err := api.RecoverStore(ctx, &nodev1.RecoverStoreRequest{DryRun: dryRun})
	if err != nil {
		return fault.FromRPC(err, "cannot make room in the store of node "+node.ID, "Run `reeve store status "+node.ID+"` to see how it is.")
	}
	recovery := output.Recovery{NodeID: node.ID, DryRun: dryRun, SizeBefore: response.GetSizeBefore(), SizeAfter: response.GetSizeAfter()}
	if dryRun {
		// How much defragmenting would leave is what is in use now.
		status, err := askStatus(ctx, api, node)
		if err != nil {
			return err
		}
		recovery.SizeBefore, recovery.SizeAfter = status.GetStore().GetDatabaseSize(), status.GetStore().GetDatabaseInUse()
	}
	return c.print(recovery)
}
