package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// removeOptions are the flags of the commands that remove a node.
type removeOptions struct {
	yes, wait, force, dryRun bool
	timeout                  time.Duration
}

// decommissionWait is how long decommission waits if nothing else is said: every role has its grace, and the store moves one safe step at a time.
const decommissionWait = 5 * time.Minute

func (c *commands) nodeDecommission() *cobra.Command {
	var options removeOptions
	cmd := &cobra.Command{
		Use:   "decommission NODE",
		Short: "Remove a node that lives, in order",
		Long: `decommission removes a node that lives: its roles end, its member leaves the store, then it wipes its secrets. It comes back only with a new ticket. It is refused where
the last curator or the quorum of the store would go. A node that is dead is removed by "reeve node delete".`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			return c.decommission(ctx, cluster, node, options)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.yes, "yes", false, "answer the question whether to remove it with yes")
	flags.BoolVar(&options.wait, "wait", false, "wait until it is Decommissioned, and show the steps")
	flags.DurationVar(&options.timeout, "timeout", decommissionWait, "how long to wait at most, with --wait"+longerStops)
	flags.BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

func (c *commands) decommission(ctx context.Context, cluster *target.Target, node target.Node, options removeOptions) error {
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	call := func(dryRun bool) (*clusterv1.NodeRecord, error) {
		response, err := management.DecommissionNode(ctx, &clusterv1.DecommissionNodeRequest{NodeId: node.ID, DryRun: dryRun})
		return response.GetNode(), fault.FromRPC(err, "cannot decommission node "+node.ID,
			"`reeve node role add NODE ROLE` gives another node what only this one has; `reeve node delete "+node.ID+"` removes a node that is dead.")
	}
	record, err := call(true)
	if err != nil {
		return err
	}
	if options.dryRun {
		return c.print(output.NewNodeChange("decommission", record, true))
	}
	c.say("Node " + node.ID + " loses its roles and what they keep there, wipes its secrets, and comes back only with a new ticket.")
	if err := c.confirmRemoval(ctx, options.yes); err != nil {
		return err
	}
	if record, err = call(false); err != nil {
		return err
	}
	document := output.NewNodeChange("decommission", record, false)
	if options.wait {
		document.Waited = true
		if _, err := c.await(ctx, node.ID, options.timeout, []await.Source{clusterSource(cluster, node.ID)}, await.Decommissioned()); err != nil {
			return err
		}
		document.State = output.State(clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	}
	if err := c.print(document); err != nil {
		return err
	}
	if !options.wait {
		c.say("`reeve describe node " + node.ID + "` shows how far it is.")
	}
	return nil
}

// confirmRemoval asks at a terminal whether to remove a node for good. Without a terminal, --yes is needed.
func (c *commands) confirmRemoval(ctx context.Context, yes bool) error {
	if yes {
		return nil
	}
	if !c.Interactive {
		return fault.New(fault.Refused, "removing a node is final, and there is no terminal to ask on", "Give --yes.")
	}
	return c.confirm(ctx, "It cannot be undone. Remove the node?", "")
}

func (c *commands) nodeDelete() *cobra.Command {
	var options removeOptions
	cmd := &cobra.Command{
		Use:   "delete NODE",
		Short: "Remove a node that is dead, or turn a machine away that has registered",
		Long: `delete removes a node that is dead: its certificates are refused from then on, its member is taken out of the store, and should it come back it wipes its
secrets. A node that lives is removed by "reeve node decommission". What forbids it is said; with --force what can be bypassed is, and is said, too.`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			return c.deleteNode(ctx, cluster, node, options)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.force, "force", false, "bypass what forbids it, as far as that can be: it is shown before")
	flags.BoolVar(&options.yes, "yes", false, "answer the question whether to remove it with yes")
	flags.BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

func (c *commands) deleteNode(ctx context.Context, cluster *target.Target, node target.Node, options removeOptions) error {
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	call := func(dryRun bool) (*clusterv1.DeleteNodeResponse, error) {
		response, err := management.DeleteNode(ctx, &clusterv1.DeleteNodeRequest{NodeId: node.ID, Force: options.force, DryRun: dryRun})
		next := "--force bypasses what can be bypassed; --dry-run with it shows what that is."
		if options.force {
			next = "That cannot be bypassed."
		}
		return response, fault.FromRPC(err, "cannot delete node "+node.ID, next)
	}
	response, err := call(true)
	if err != nil {
		return err
	}
	if !options.dryRun {
		c.say("Node " + node.ID + " is a member no more at once, and never again; what it keeps is lost to the cluster.")
		for _, bypassed := range response.GetBypassed() {
			c.say(output.Clean("BYPASSED: " + bypassed))
		}
		if err := c.confirmRemoval(ctx, options.yes); err != nil {
			return err
		}
		if response, err = call(false); err != nil {
			return err
		}
	}
	document := output.NewNodeChange("delete", response.GetNode(), options.dryRun)
	document.Bypassed = append(document.Bypassed, response.GetBypassed()...)
	return c.print(document)
}
