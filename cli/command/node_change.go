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

// changeNode finds a node, changes it by one call and prints what became of it. what says what cannot be done if it is refused.
func (c *commands) changeNode(ctx context.Context, name, action, what, next string, dryRun bool,
	change func(context.Context, clusterv1.ManagementServiceClient, string) (*clusterv1.NodeRecord, error)) error {
	return c.withFound(ctx, name, func(cluster *target.Target, node target.Node) error {
		record, err := change(ctx, cluster.API(), node.ID)
		return c.answer(output.NewNodeChange(action, record, dryRun), fault.FromRPC(err, "node "+node.ID+" cannot be "+what, next))
	})
}

func (c *commands) nodeAccept() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "accept NODE",
		Short: "Take the next start of a node for the right one",
		Long: `accept has the cluster take the next start of a node for the right one, whatever it counted before: after its disk was restored from a copy, or when one of two
machines with its key was switched off. As long as two are there they refuse each other in turn: switch one off first.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.changeNode(cmd.Context(), given[0], "accept", "accepted", "Run `reeve describe node "+given[0]+"` to see what the cluster knows of it.", dryRun,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, id string) (*clusterv1.NodeRecord, error) {
					response, err := management.AcceptNode(ctx, &clusterv1.AcceptNodeRequest{NodeId: id, DryRun: dryRun})
					return response.GetNode().GetRecord(), err
				})
		},
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
			return c.changeNode(cmd.Context(), given[0], "label", "labelled", "Run `reeve node list` to see the nodes and their labels.", dryRun,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, id string) (*clusterv1.NodeRecord, error) {
					response, err := management.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: id, Labels: labels, DryRun: dryRun})
					return response.GetNode(), err
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
		Short: "Have a node hold its roles back, or let them run again",
		Long: `drain has a node hold back its roles, but for those that the cluster itself runs on (consensus and curator): before its machine is worked on. They stay
assigned, and run again after "reeve node drain --undo".`,
		RunE: func(cmd *cobra.Command, given []string) error {
			action := "drain"
			if undo {
				action = "undrain"
			}
			return c.changeNode(cmd.Context(), given[0], action, map[bool]string{false: "drained", true: "let run its roles again"}[undo], "Run `reeve node list` to see the nodes.", dryRun,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, id string) (*clusterv1.NodeRecord, error) {
					response, err := management.DrainNode(ctx, &clusterv1.DrainNodeRequest{NodeId: id, Undo: undo, DryRun: dryRun})
					return response.GetNode(), err
				})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let its roles run again")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}
