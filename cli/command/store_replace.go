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

// replaceWait is how long `reeve store replace` waits if nothing else is said: the new member takes over all of the store's data.
const replaceWait = 10 * time.Minute

func (c *commands) storeReplace() *cobra.Command {
	var yes, wait, dryRun bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "replace NODE",
		Short: "Replace the member of the store on a node, whose data is damaged",
		Long: `replace has the store remove its member on a node, and the node join as a new member, which takes all data over from the others. It is for a member whose data is damaged: one that
"reeve node list" or the node's role names as such. The node puts the data of the former member aside, in the directory former of the role's directory.

It is refused if the other members that answer could not decide that the one of this node goes, with the names of those who are missing, and for the only member of a store.`,
		Example: "  reeve store replace reeve-6f1c --yes",
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, _ []string) error {
			return c.replaceMember(ctx, cluster, node, yes, wait, dryRun, timeout)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&yes, "yes", false, "answer the question whether to replace it with yes")
	flags.BoolVar(&wait, "wait", true, "wait until the new member votes, and show the steps")
	flags.DurationVar(&timeout, "timeout", replaceWait, "how long to wait at most")
	flags.BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

func (c *commands) replaceMember(ctx context.Context, cluster *target.Target, node target.Node, yes, wait, dryRun bool, timeout time.Duration) error {
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	call := func(dryRun bool) (*clusterv1.NodeRecord, error) {
		response, err := management.ReplaceStoreMember(ctx, &clusterv1.ReplaceStoreMemberRequest{NodeId: node.ID, DryRun: dryRun})
		return response.GetNode(), fault.FromRPC(err, "cannot replace the member of the store on node "+node.ID, "`reeve node list` and `reeve store status` show how the members are.")
	}
	record, err := call(true)
	if err != nil {
		return err
	}
	document := output.StoreReplacement{NodeID: node.ID, DryRun: dryRun, FormerMember: record.GetReplacedMember()}
	if dryRun {
		return c.print(document)
	}
	c.say("The store removes its member " + record.GetReplacedMember() + " on node " + node.ID + ". The node puts that member's data aside, and joins as a new one, which takes all data over from the others.")
	if !yes {
		if !c.Interactive {
			return fault.New(fault.Refused, "the data of a member is put aside for good, and there is no terminal to ask on", "Give --yes.")
		}
		if err := c.confirm(ctx, "Replace it?", ""); err != nil {
			return err
		}
	}
	if record, err = call(false); err != nil {
		return err
	}
	document.FormerMember = record.GetReplacedMember()
	if wait {
		if _, err := c.await(ctx, node.ID, timeout, []await.Source{clusterSource(cluster, node.ID)}, await.Replaced(document.FormerMember)); err != nil {
			return err
		}
		document.Waited = true
	}
	if err := c.print(document); err != nil {
		return err
	}
	if !wait {
		c.say("`reeve describe node " + node.ID + "` shows how far it is.")
	}
	return nil
}
