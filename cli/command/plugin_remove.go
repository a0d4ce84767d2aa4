package command

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) pluginRemove() *cobra.Command {
	request := &clusterv1.RemovePluginRequest{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a plugin out of the catalog",
		Long: `remove takes a plugin out of the catalog, with what its roles are granted and with their ConsensusUsers: every connection that they have to the store is
closed. It is refused while nodes have roles of the plugin, unless --remove-roles takes those, too.

What it kept in the store, and in its directories on the nodes, stays for when it is added again; --wipe removes that as well, and asks on a terminal.
It cannot be undone.`,
		Example: `  reeve plugin remove lighthouse
  reeve plugin remove lighthouse --remove-roles --wipe`,
		RunE: func(cmd *cobra.Command, given []string) error {
			request.Name = given[0]
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.removePlugin(cmd.Context(), cluster, request, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&request.RemoveRoles, "remove-roles", false, "take its roles from the nodes that have them")
	cmd.Flags().BoolVar(&request.Wipe, "wipe", false, "remove what it kept in the store, and with --remove-roles on the nodes; that cannot be undone")
	cmd.Flags().BoolVar(&yes, "yes", false, "answer the question whether to wipe with yes")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, c.pluginNames())
	return cmd
}

func (c *commands) removePlugin(ctx context.Context, cluster *target.Target, request *clusterv1.RemovePluginRequest, yes bool) error {
	record, err := getPlugin(ctx, cluster, request.GetName())
	if err != nil {
		return err
	}
	if request.GetWipe() && !request.GetDryRun() {
		for _, grants := range record.GetGrants() {
			if user := grants.GetConsensusUser(); user != "" {
				c.say(output.Clean("What user " + user + " keeps in the store is removed."))
			}
		}
		if request.GetRemoveRoles() {
			c.say("What its roles keep in their directories on the nodes, and their logs, are removed.")
		}
		if err := c.confirmWipe(ctx, yes); err != nil {
			return err
		}
	}
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	response, err := management.RemovePlugin(ctx, request)
	if err != nil {
		return notRemoved(err, request)
	}
	return c.printChange(output.PluginChange{
		Plugin: output.NewPlugin(response.GetPlugin()), Action: "remove", DryRun: request.GetDryRun(), Wiped: request.GetWipe(), Nodes: response.GetNodes(),
	})
}

// notRemoved is the error of a plugin that was not removed. The cluster says how far it came; it cannot where the time of the call was up.
func notRemoved(err error, request *clusterv1.RemovePluginRequest) error {
	next := "Give --remove-roles to take its roles from the nodes as well, or take them one by one with `reeve node role remove NODE ROLE`."
	if request.GetRemoveRoles() {
		next = ""
		if status.Code(err) == codes.DeadlineExceeded && !request.GetDryRun() {
			err = &fault.Advised{Err: err, Next: "A part of the nodes may have lost its roles already: the same command goes on with the others."}
		}
	}
	return fault.FromRPC(err, "cannot remove plugin "+request.GetName(), next)
}

// confirmWipe asks at a terminal whether to remove data for good.
func (c *commands) confirmWipe(ctx context.Context, yes bool) error {
	if yes || !c.Interactive {
		return nil
	}
	return c.confirm(ctx, "It cannot be undone. Remove it?", "Leave out --wipe to keep the data.")
}
