package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// offered is what a manifest says of a role; nil if it does not offer it.
func offered(manifest *rolev1.Manifest, role string) *rolev1.RoleManifest {
	i := slices.IndexFunc(manifest.GetRoles(), func(one *rolev1.RoleManifest) bool { return one.GetName() == role })
	if i < 0 {
		return nil
	}
	return manifest.GetRoles()[i]
}

func offers(manifest *rolev1.Manifest, role string) bool { return offered(manifest, role) != nil }

func (c *commands) pluginGrant() *cobra.Command {
	var privileged, dryRun bool
	cmd := &cobra.Command{
		Use:   "grant NAME ROLE:GRANT[:KEY=VALUE]",
		Short: "Grant a role what it asks for and was refused",
		Long: `grant grants a power that a role of the version which runs asks for, with a parameter in place of the one that is asked for, or as it asks for it; the
ConsensusUser of a role is ROLE:consensus-user. Nodes start the role again with what it is granted then.

That a role is privileged, and has no sandbox then, is approved by that word only: typed on a terminal, or with --privileged.`,
		Example: `  reeve plugin grant hostsfile hostsfile:set-hostname
  reeve plugin grant lighthouse lighthouse:consensus-user`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.changeGrants(cmd.Context(), given, "grant", dryRun, privileged, (*choice).grant)
		},
	}
	cmd.Flags().BoolVar(&privileged, "privileged", false, "approve that a role is privileged: it has no sandbox then")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, c.pluginNames(), c.refusedPowers)
	return cmd
}

func (c *commands) pluginWithdraw() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "withdraw NAME ROLE:GRANT[:KEY=VALUE]",
		Short: "Take from a role what it is granted",
		Long: `withdraw takes a power from a role; the ConsensusUser of a role is ROLE:consensus-user. Nodes start the role again with what it is granted then. A
ConsensusUser is taken out of the store, with every connection that it has; what it keeps there stays for when it is granted again.`,
		Example: `  reeve plugin withdraw hostsfile hostsfile:set-hostname
  reeve plugin withdraw lighthouse lighthouse:consensus-user`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.changeGrants(cmd.Context(), given, "withdraw", dryRun, false, (*choice).refuse)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	completeArguments(cmd, c.pluginNames(), c.heldPowers)
	return cmd
}

// changeGrants changes what one role of a plugin is granted.
func (c *commands) changeGrants(ctx context.Context, given []string, action string, dryRun, privileged bool, do func(*choice, power) error) error {
	powers, err := parsePowers("", given[1:])
	if err != nil {
		return err
	}
	return c.withTarget(ctx, func(cluster *target.Target) error {
		record, err := getPlugin(ctx, cluster, given[0])
		if err != nil {
			return err
		}
		role := offered(record.GetManifest(), powers[0].role)
		if role == nil {
			return fault.New(fault.NotFound, "the version of plugin "+given[0]+" that runs offers no role "+powers[0].role,
				"Run `reeve plugin show "+given[0]+"` to see its roles.")
		}
		had := remit.ForRole(record.GetGrants(), role.GetName())
		// Everything that it asks for is decided on: what is not granted was refused.
		asked := &clusterv1.RoleGrants{ConsensusUser: role.GetConsensusUser(), Grants: role.GetGrants()}
		choice := keep(record.GetName(), role, asked, had)
		before := choice.result()
		if err := do(choice, powers[0]); err != nil {
			return err
		}
		grants := choice.result()
		if proto.Equal(grants, before) {
			return fault.New(fault.Refused, "nothing would change: "+powers[0].text()+" is "+map[string]string{"grant": "granted", "withdraw": "refused"}[action]+" already",
				"Run `reeve plugin show "+given[0]+"` to see what its roles are granted.")
		}
		if newlyPrivileged([]*clusterv1.RoleGrants{had}, []*clusterv1.RoleGrants{grants}) != "" && !privileged && !dryRun {
			if err := c.byWord(ctx, role.GetName()); err != nil {
				return err
			}
		}
		response, err := cluster.API().SetGrants(ctx, &clusterv1.SetGrantsRequest{
			Plugin: record.GetName(), Grants: grants, ExpectedGeneration: record.GetGeneration(), DryRun: dryRun,
		})
		if err != nil {
			next := "Run `reeve plugin show " + given[0] + "` to see what its roles ask for and are granted."
			if status.Code(err) == codes.Aborted {
				next = "Somebody has changed the plugin meanwhile: run the command again."
			}
			return fault.FromRPC(err, "cannot change the grants of role "+role.GetName(), next)
		}
		return c.printChange(output.PluginChange{Plugin: output.NewPlugin(response.GetPlugin()), Action: action, DryRun: dryRun})
	})
}

// byWord has somebody at the terminal approve that a role has no sandbox.
func (c *commands) byWord(ctx context.Context, role string) error {
	if c.Interactive {
		answer, err := c.ask(ctx, "Role "+output.Clean(role)+" would have no sandbox. Type the word privileged to approve that:")
		if err != nil || answer == remit.Privileged {
			return err
		}
	}
	return fault.New(fault.Refused, "role "+output.Clean(role)+" would have no sandbox, and the word privileged was not given: nothing was changed",
		"Give --privileged if it may run without one.")
}
