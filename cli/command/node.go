package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) node() *cobra.Command {
	return group("node", "Nodes and their roles", c.nodeList(), c.nodeApprove(), c.nodeAccept(), c.nodeLabel(), c.nodeDrain(), c.nodeDecommission(), c.nodeDelete(),
		c.nodeMetrics(), c.nodeUnlock(), c.nodeSeal(), c.nodeKeys(), c.nodeReseal(), c.nodePeers(),
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
			var all []output.Node
			for _, node := range nodes {
				// What is in configurations may be secret: `reeve describe` shows it to those who ask for it.
				all = append(all, output.NewNode(withoutConfigurations(node)))
			}
			return c.print(output.NewNodes(all))
		}),
	}
}

// warnOfTwoMembers says what it means that the store has two members, after one of the roles was given to a node.
func (c *commands) warnOfTwoMembers(ctx context.Context, cluster *target.Target, roles ...string) {
	if !slices.Contains(roles, setup.Consensus) {
		return
	}
	nodes, err := cluster.ListNodes(ctx)
	if err != nil {
		return // the change is made, and nothing depends on this
	}
	members := 0
	for _, node := range nodes {
		switch node.GetRecord().GetState() {
		case clusterv1.NodeState_NODE_STATE_STANDBY, clusterv1.NodeState_NODE_STATE_UP:
			if slices.ContainsFunc(node.GetRecord().GetRoles(), func(role *clusterv1.RoleAssignment) bool {
				return role.GetRole() == setup.Consensus && !role.GetLeaving()
			}) {
				members++
			}
		}
	}
	if members == 2 {
		c.say(twoMembers)
	}
}

// twoMembers is what an operator has to know of a store with two members.
const twoMembers = "The store has two members from now on: losing either of the two stops the cluster. Give a third node the role " + setup.Consensus + "."

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
