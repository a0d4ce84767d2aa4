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

func (c *commands) pluginApprove() *cobra.Command {
	var options approval
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "approve NAME",
		Short: "Let the version of a plugin that waits take the place of the one that runs",
		Long: `approve shows what the version that waits asks for beyond what was decided, asks on a terminal (elsewhere --yes has to be given), and lets it take the place of the version that runs. Nodes
on which it does not work go back to the version before.

What is approved is what was shown: if another version waits by then, nothing is changed. A role that asks to be privileged, that is for no sandbox at
all, is approved by that word only: typed on a terminal, or with --privileged.

--grant grants a power with a parameter in place of the one that is asked for, or one that was refused before; --without refuses one. Either names it as
ROLE:NAME, or ROLE:NAME:KEY=VALUE; the ConsensusUser of a role is ROLE:consensus-user.`,
		Example: `  reeve plugin approve lighthouse
  reeve plugin approve lighthouse --yes --without lighthouse:connect`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := options.parse(); err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.approvePlugin(cmd.Context(), cluster, given[0], options, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	options.flags(c, cmd)
	completeArguments(cmd, completed(c, catalog, func(plugin *clusterv1.PluginRecord) (string, string) {
		if plugin.GetWaiting() == nil {
			return "", ""
		}
		return plugin.GetName(), plugin.GetWaiting().GetVersion() + " waits"
	}))
	return cmd
}

func (c *commands) approvePlugin(ctx context.Context, cluster *target.Target, name string, options approval, dryRun bool) error {
	record, err := getPlugin(ctx, cluster, name)
	if err != nil {
		return err
	}
	waits := record.GetWaiting()
	if waits == nil {
		return fault.New(fault.Refused, "no version of plugin "+name+" waits for approval",
			"Run `reeve plugin show "+name+"` to see what runs, `reeve plugin add FILE` to add a version.")
	}
	approved, grants, err := c.decide(ctx, newQuestion(record, waits, options), true, dryRun)
	if err != nil {
		return err
	}
	if !approved {
		c.say("Version " + output.Clean(waits.GetVersion()) + " goes on waiting.")
		return nil
	}
	response, err := cluster.API().ApprovePlugin(ctx, &clusterv1.ApprovePluginRequest{
		Name: name, Version: waits.GetVersion(), Digests: waits.GetDigests(), Grants: grants, DryRun: dryRun,
	})
	if err != nil {
		next := "Run `reeve plugin show " + name + "` to see what runs and what waits."
		if status.Code(err) == codes.Aborted {
			next = "Somebody has added another version meanwhile: run `reeve plugin approve " + name + "` again, and look at it."
		}
		return fault.FromRPC(err, "cannot approve version "+output.Clean(waits.GetVersion())+" of plugin "+name, next)
	}
	return c.printChange(output.PluginChange{Plugin: output.NewPlugin(response.GetPlugin()), Action: "approve", DryRun: dryRun})
}
