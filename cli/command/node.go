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
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			nodes, err := cluster.ListNodes(ctx)
			if err != nil {
				return err
			}
			var document output.Nodes
			for _, node := range nodes {
				// What is in configurations may be secret: `reeve describe` shows it to those who ask for it.
				document.Nodes = append(document.Nodes, output.NewNode(withoutConfigurations(node)))
			}
			return c.print(document)
		}),
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
	return &cobra.Command{
		Use:   "metrics [NODE]",
		Short: "Show the metrics of a node, its store and its roles",
		Long:  `metrics shows the metrics of a node, its store and its roles, in the text format of Prometheus.`,
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			text, err := readMetrics(ctx, api, node)
			if err != nil {
				return err
			}
			return c.print(output.Metrics{NodeID: node.ID, Text: text})
		}),
	}
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
