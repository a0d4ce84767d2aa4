package command

import (
	"context"
	"maps"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// addOptions are the flags of `reeve plugin add`.
type addOptions struct {
	approval
	node    string
	report  string
	approve bool
	dryRun  bool
}

func (c *commands) pluginAdd() *cobra.Command {
	var options addOptions
	cmd := &cobra.Command{
		Use:   "add FILE",
		Short: "Add a plugin, or another version of one, to the catalog",
		Long: `add gives the executable FILE to a node, which keeps it and asks it what it offers and what it asks for, and puts it into the catalog.

A version that asks for nothing the owner has not decided on runs at once, with what its roles are granted already. For another one add shows on a terminal what
is asked for, and asks; elsewhere, or where the answer is no, the version waits until ` + "`reeve plugin approve`" + `, and the one before runs on. --approve
approves without asking. A role that asks to be privileged, that is for no sandbox at all, is approved by that word only: typed on a terminal, or with
--privileged.

--grant grants a power with a parameter in place of the one that is asked for, or one that was refused before; --without refuses one. Either names it as
ROLE:NAME, or ROLE:NAME:KEY=VALUE; the ConsensusUser of a role is ROLE:consensus-user.

--report gives a signed report of the conformance suite on the executable (reeve plugin test --report) with it, which the cluster shows, and may demand (reeve
policy set conformance=required). An owner must have signed it.

With --dry-run the node keeps the executable and asks it all the same, since nothing else tells what it is; the catalog does not change.`,
		Example: `  reeve plugin add ./lighthouse
  reeve plugin add ./lighthouse --approve
  reeve plugin add ./lighthouse --approve --report lighthouse.report
  reeve plugin add ./hostsfile --approve --grant hostsfile:replace-file:path=/srv/hosts --without hostsfile:set-hostname`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := options.parse(); err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.addPlugin(cmd.Context(), cluster, given[0], options)
			})
		},
	}
	cmd.Flags().StringVar(&options.node, "node", "", "the node that takes the executable (default: the local one, or the only one)")
	cmd.Flags().StringVar(&options.report, "report", "", "`FILE` with a signed report of the conformance suite on it")
	cmd.Flags().BoolVar(&options.approve, "approve", false, "approve what the version asks for, without asking")
	cmd.Flags().BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	options.flags(c, cmd)
	complete(cmd, "node", c.nodeNames)
	return cmd
}

func (c *commands) addPlugin(ctx context.Context, cluster *target.Target, file string, options addOptions) error {
	envelopes, err := c.reportOn(file, options.report)
	if err != nil {
		return err
	}
	imported, err := importFile(ctx, cluster, file, options.node)
	if err != nil {
		return err
	}
	plugins, err := listPlugins(ctx, cluster)
	if err != nil {
		return err
	}
	manifest, digests := imported.GetManifest(), map[string]string{imported.GetPlatform(): imported.GetDigest()}
	record := find(plugins, manifest.GetName())
	request := &clusterv1.AddPluginRequest{Manifest: manifest, Digests: digests, DryRun: options.dryRun, Reports: envelopes}
	chosen := options.chosen()
	undecided := len(remit.Beyond(manifest, record.GetDecided(), record.GetGrants())) > 0 || chosen
	switch {
	case options.approve, undecided && options.yes, undecided && c.Interactive && !options.dryRun:
		question := newQuestion(record, &clusterv1.PluginVersion{Version: manifest.GetVersion(), Digests: digests, Manifest: manifest}, options.approval)
		approved, grants, err := c.decide(ctx, question, !options.approve, options.dryRun)
		if err != nil {
			return err
		}
		if approved {
			request.Approve, request.Grants = true, grants
		}
	case chosen:
		return fault.New(fault.Usage, "--grant and --without change what is approved, and --approve is missing",
			"Give --approve, or leave them out and decide with `reeve plugin approve "+output.Clean(manifest.GetName())+"`.")
	}
	added, err := c.addVersion(ctx, cluster.API(), request)
	if err != nil {
		return fault.FromRPC(err, "cannot add plugin "+output.Clean(manifest.GetName())+" to the catalog", "Run `reeve plugin list` to see what is there.")
	}
	runs := added.GetVersion() == manifest.GetVersion() && added.GetDigests()[imported.GetPlatform()] == imported.GetDigest()
	return c.printChange(output.PluginChange{Plugin: output.NewPlugin(added), Action: "add", DryRun: options.dryRun, Waits: !runs})
}

// addVersion puts a version into the catalog. The call that adds one and approves it grants ConsensusUsers as they are declared: where the owner refuses one, or
// has before, the version is added first and approved then.
func (c *commands) addVersion(ctx context.Context, management clusterv1.ManagementServiceClient, request *clusterv1.AddPluginRequest) (*clusterv1.PluginRecord, error) {
	user := refusedUser(request.GetManifest(), request.GetGrants())
	if !request.GetApprove() || user == "" {
		response, err := management.AddPlugin(ctx, request)
		return response.GetPlugin(), err
	}
	request.Approve = false
	grants := request.GetGrants()
	request.Grants = nil
	response, err := management.AddPlugin(ctx, request)
	waits := response.GetPlugin().GetWaiting()
	if err != nil || waits.GetVersion() != request.GetManifest().GetVersion() || !maps.Equal(waits.GetDigests(), request.GetDigests()) {
		return response.GetPlugin(), err
	}
	if request.GetDryRun() {
		c.say(output.Clean("It would then be approved, without the ConsensusUser " + user + "."))
		return response.GetPlugin(), nil
	}
	approved, err := management.ApprovePlugin(ctx, &clusterv1.ApprovePluginRequest{
		Name: request.GetManifest().GetName(), Version: waits.GetVersion(), Digests: waits.GetDigests(), Grants: grants,
	})
	return approved.GetPlugin(), err
}

// refusedUser is a ConsensusUser that a role declares and is not granted; empty: there is none.
func refusedUser(manifest *rolev1.Manifest, grants []*clusterv1.RoleGrants) string {
	for _, role := range manifest.GetRoles() {
		if user := role.GetConsensusUser(); user != remit.ForRole(grants, role.GetName()).GetConsensusUser() {
			return user
		}
	}
	return ""
}

// printChange prints what became of a plugin, and what can be done about what waits or was refused.
func (c *commands) printChange(change output.PluginChange) error {
	if change.Nodes == nil {
		change.Nodes = []string{}
	}
	if err := c.print(change); err != nil {
		return err
	}
	if change.DryRun || change.Action == "remove" {
		return nil
	}
	if change.Waits {
		c.sayWaiting(change.GetName())
		return nil
	}
	for _, role := range change.Roles {
		refused := ""
		switch {
		case len(role.Withheld.Grants) > 0:
			refused = role.Withheld.GetGrants()[0].GetName()
		case role.Withheld.ConsensusUser != "":
			refused = consensusUser
		default:
			continue
		}
		c.say(output.Clean("What was refused to role " + role.Role + " can be granted: `reeve plugin grant " + change.GetName() + " " + role.Role + ":" + refused + "`."))
	}
	return nil
}
