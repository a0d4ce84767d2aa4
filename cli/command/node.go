package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) node() *cobra.Command {
	return group("node", "Nodes and their roles", c.nodeList(), c.nodeApprove(), c.nodeAccept(), c.nodeLabel(), c.nodeDrain(), c.nodeDecommission(), c.nodeDelete(),
		c.nodeMetrics(), c.nodeUnlock(), c.nodeSeal(), c.nodeKeys(), c.nodeReseal(),
		c.role())
}

func (c *commands) nodeList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the nodes of the cluster",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				nodes, err := cluster.ListNodes(cmd.Context())
				if err != nil {
					return err
				}
				var document output.Nodes
				for _, node := range nodes {
					// What is in configurations may be secret: `reeve describe` shows it to those who ask for it.
					document.Nodes = append(document.Nodes, output.NewNode(withoutConfigurations(node)))
				}
				return c.print(document)
			})
		},
	}
}

// getNode returns a node as the cluster sees it.
func getNode(ctx context.Context, cluster *target.Target, node target.Node) (*clusterv1.Node, error) {
	response, err := cluster.API().GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: node.ID})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot read what the cluster knows of node "+node.ID, "Run `reeve node list` to see the nodes.")
	}
	return response.GetNode(), nil
}

func (c *commands) nodeMetrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [NODE]",
		Short: "Show the metrics of a node, its store and its roles",
		Long: `metrics shows the metrics of a node, its store and its roles, in the text format of Prometheus.

` + nodeArgument + ` Without it: the local node, or the cluster's only one.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.withNode(cmd.Context(), optional(given), func(api nodev1.NodeServiceClient, node target.Node) error {
				text, err := readMetrics(cmd.Context(), api, node)
				if err != nil {
					return err
				}
				return c.print(output.Metrics{NodeID: node.ID, Text: text})
			})
		},
	}
	c.completeNodes(cmd)
	return cmd
}

func readMetrics(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := api.GetMetrics(ctx, &nodev1.GetMetricsRequest{})
	if err != nil {
		return "", fault.FromRPC(err, "cannot read the metrics of node "+node.ID, "")
	}
	return string(response.GetText()), nil
}
