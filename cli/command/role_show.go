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
	cmd := &cobra.Command{
		Use:   "show NODE ROLE",
		Short: "Show the remit of a role on a node, and the sandbox that enforces it",
		Long: `show shows what a role on a node is granted, and what confines its process: its user, what it may read, change and execute, its ports and bounds, what of that the
node cannot enforce, and what it has in the store. The node itself is asked, so that it works while the cluster is out of reach.

` + nodeArgument,
		Example: "  reeve node role show self lighthouse",
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.withNode(cmd.Context(), given[0], func(api nodev1.NodeServiceClient, node target.Node) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), target.CallTimeout)
				defer cancel()
				response, err := api.GetRole(ctx, &nodev1.GetRoleRequest{Role: given[1]})
				if err != nil {
					return fault.FromRPC(err, "cannot read the remit of role "+given[1]+" from node "+node.ID,
						"Run `reeve node role list "+node.ID+"` to see the roles of the node.")
				}
				return c.print(output.NewRoleShown(node.ID, given[1], response))
			})
		},
	}
	c.completeNodeRole(cmd)
	return cmd
}
