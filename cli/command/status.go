package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show a node, its membership and its roles",
		Long: `status shows a node as it sees itself. Of a role that failed it shows the cause and what the role last wrote.

` + nodeArgument + ` Without it: the local node, or the cluster's only one.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				status, err := nodeStatus(cmd.Context(), cluster, optional(given))
				if err != nil {
					return err
				}
				return c.print(output.NewStatus(status))
			})
		},
	}
	c.completeNodes(cmd)
	return cmd
}

func nodeStatus(ctx context.Context, cluster *target.Target, name string) (*nodev1.Status, error) {
	if name == "" && cluster.HasLocal() {
		// A node that has no key yet has a status all the same.
		return cluster.LocalStatus(ctx)
	}
	node, err := cluster.FindNode(ctx, name)
	if err != nil {
		return nil, err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return nil, err
	}
	return askStatus(ctx, api, node)
}

// askStatus returns what a node says of itself.
func askStatus(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) (*nodev1.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := api.GetStatus(ctx, &nodev1.GetStatusRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "the status of node "+node.ID+" cannot be had", "")
	}
	return response.GetStatus(), nil
}
