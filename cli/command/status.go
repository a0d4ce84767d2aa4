package command

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show a node, its membership and its roles",
		Long: `status shows a node as it sees itself. Without NODE it is that of the dev directory, or the cluster's only one.

NODE is a node's ID, an unambiguous beginning of it, or "self" for the node of the dev directory.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			name := ""
			if len(given) > 0 {
				name = given[0]
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				status, err := nodeStatus(cmd.Context(), cluster, name)
				if err != nil {
					return err
				}
				return c.print(output.NewStatus(status))
			})
		},
	}
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
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := api.GetStatus(ctx, &nodev1.GetStatusRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "the status of node "+node.ID+" cannot be had", "")
	}
	return response.GetStatus(), nil
}

func (c *commands) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of reeve",
		Args:  arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return c.print(output.Version{Version: c.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH})
		},
	}
}
