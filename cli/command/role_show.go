package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) role() *cobra.Command {
	return group("role", "The roles of a node", c.roleList(), c.roleShow(), c.roleAdd(), c.roleRemove(), c.roleRestart(), c.roleDebug())
}

func (c *commands) roleShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NODE ROLE",
		Short: "Show the remit of a role on a node, and the sandbox that enforces it",
		Long: `show shows what a role on a node is granted, and what confines its process: its user, what it may read, change and execute, its ports and bounds, what of that the
node cannot enforce, and what it has in the store. The node itself is asked, so that it works while the cluster is out of reach.`,
		Example: "  reeve node role show self lighthouse",
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
			defer cancel()
			response, err := api.GetRole(ctx, &nodev1.GetRoleRequest{Role: given[1]})
			return c.answer(output.NewRoleShown(node.ID, given[1], response), fault.FromRPC(err, "cannot read the remit of role "+given[1]+" from node "+node.ID,
				"Run `reeve node role list "+node.ID+"` to see the roles of the node."))
		}),
	}
}
