package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) nodeAccept() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "accept NODE",
		Short: "Accept the next start of a node, whatever its count",
		Long: `accept makes the cluster accept the next start of a node, whatever its count of starts is: after its disk was restored from a copy, or when one of two
machines with its key was switched off. As long as both run, the cluster refuses each in turn: switch one off first.`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			response, err := cluster.API().AcceptNode(ctx, &clusterv1.AcceptNodeRequest{NodeId: node.ID, DryRun: dryRun})
			return c.answer(output.NewNodeChange("accept", response.GetNode().GetRecord(), dryRun),
				fault.FromRPC(err, "cannot accept node "+node.ID, "Run `reeve describe node "+given[0]+"` to see what the cluster knows of it."))
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

// mostLabels is how many labels one command sets at most.
const mostLabels = 64

func (c *commands) nodeLabel() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "label NODE KEY=VALUE|KEY-…",
		Short:   "Set labels of a node, or take them away",
		Long:    `label sets labels of a node, and takes away those that are given as KEY-. The others stay as they are.`,
		Example: "  reeve node label reeve-6f1c rack=7 zone-",
		Args:    arguments(2, 1+mostLabels),
		RunE: func(cmd *cobra.Command, given []string) error {
			labels, err := parseLabels(given[1:], true)
			if problem := (*fault.Error)(nil); errors.As(err, &problem) {
				return fault.New(fault.Usage, problem.Error(), "See `"+cmd.CommandPath()+" --help`.")
			}
			return c.withFound(cmd.Context(), given[0], func(cluster *target.Target, node target.Node) error {
				response, err := cluster.API().SetLabels(cmd.Context(), &clusterv1.SetLabelsRequest{NodeId: node.ID, Labels: labels, DryRun: dryRun})
				return c.answer(output.NewNodeChange("label", response.GetNode(), dryRun),
					fault.FromRPC(err, "cannot label node "+node.ID, "Run `reeve node list` to see the nodes and their labels."))
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

func (c *commands) nodeDrain() *cobra.Command {
	var undo, dryRun bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Stop the roles of a node, or let them run again",
		Long: `drain stops the roles of a node, except those that the cluster itself runs on (consensus and curator): before its machine is worked on. They stay
assigned, and run again after "reeve node drain --undo".`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, _ []string) error {
			action := "drain"
			if undo {
				action = "undrain"
			}
			response, err := cluster.API().DrainNode(ctx, &clusterv1.DrainNodeRequest{NodeId: node.ID, Undo: undo, DryRun: dryRun})
			return c.answer(output.NewNodeChange(action, response.GetNode(), dryRun),
				fault.FromRPC(err, "cannot "+action+" node "+node.ID, "Run `reeve node list` to see the nodes."))
		}),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let its roles run again")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}
