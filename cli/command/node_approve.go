package command

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// approveOptions are the flags of `reeve node approve`.
type approveOptions struct {
	roles, labels        []string
	noRoles, yes, dryRun bool
}

func (c *commands) nodeApprove() *cobra.Command {
	var options approveOptions
	cmd := &cobra.Command{
		Use:   "approve NODE",
		Short: "Let a machine that has registered become a node",
		Long: `approve shows what a machine has proven and what it says of itself, asks, and makes it a node. Compare the fingerprint of its key with what "reeve status" shows
on that machine: everything else that it says of itself nobody has proven. It gets the roles that it asks for, those of --role, or with --no-roles none;
--label adds labels, and KEY- takes one away.`,
		Example: `  reeve node approve reeve-6f1c
  reeve node approve reeve-6f1c --role hostsfile --label rack=7 --yes`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if options.noRoles && len(options.roles) > 0 {
				return fault.New(fault.Usage, "--role and --no-roles contradict each other", "Give one of them, or none to give the node the roles that it asks for.")
			}
			labels, err := parseLabels(options.labels, true)
			if err != nil {
				return err
			}
			return c.withFound(cmd.Context(), given[0], func(cluster *target.Target, node target.Node) error {
				return c.approve(cmd.Context(), cluster, node, options, labels)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.roles, "role", nil, "give it this `ROLE` in place of those that it asks for; may be repeated")
	flags.BoolVar(&options.noRoles, "no-roles", false, "give it none of the roles that it asks for")
	flags.StringArrayVar(&options.labels, "label", nil, "a label `KEY=VALUE`, or KEY- to take away one that it asks for; may be repeated")
	flags.BoolVar(&options.yes, "yes", false, "answer the question whether to approve with yes")
	flags.BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	complete(cmd, "role", c.offeredNames())
	completeArguments(cmd, completed(c, func(ctx context.Context, cluster *target.Target, _ []string) ([]*clusterv1.Node, error) {
		return cluster.ListNodes(ctx)
	},
		func(node *clusterv1.Node) (string, string) {
			if node.GetRecord().GetState() != clusterv1.NodeState_NODE_STATE_NEW {
				return "", ""
			}
			return node.GetRecord().GetId(), "New"
		}))
	return cmd
}

func (c *commands) approve(ctx context.Context, cluster *target.Target, node target.Node, options approveOptions, labels map[string]string) error {
	found, err := getNode(ctx, cluster, node)
	if err != nil {
		return err
	}
	record := found.GetRecord()
	request := &clusterv1.ApproveNodeRequest{
		// What was looked at is what is approved, whatever happens meanwhile.
		NodeId: node.ID, PublicKey: record.GetPublicKey(), Labels: labels, SetRoles: options.noRoles || len(options.roles) > 0, DryRun: options.dryRun,
	}
	for _, role := range options.roles {
		assignment := &clusterv1.RoleAssignment{Role: role}
		// Of a role that it asks for it gets the configuration, too.
		for _, asked := range record.GetRegistration().GetRoles() {
			if asked.GetRole() == role {
				assignment.Configuration = asked.GetConfiguration()
			}
		}
		request.Roles = append(request.Roles, assignment)
	}
	if record.GetState() == clusterv1.NodeState_NODE_STATE_NEW {
		if err := c.confirmApproval(ctx, output.NewNode(found), options, labels); err != nil {
			return err
		}
	}
	response, err := cluster.API().ApproveNode(ctx, request)
	if err != nil {
		next := "Run `reeve node list` to see the nodes, `reeve plugin list` to see the roles that there are."
		if status.Code(err) == codes.Aborted {
			next = "It is not the key that you looked at: run the command again, and compare it with what `reeve status` shows on that machine."
		}
		return fault.FromRPC(err, "cannot approve node "+node.ID, next)
	}
	if err := c.print(output.NewNodeChange("approve", response.GetNode(), options.dryRun)); err != nil {
		return err
	}
	if !options.dryRun && response.GetNode().GetState() == clusterv1.NodeState_NODE_STATE_STANDBY {
		c.say("It becomes Up as soon as it has heard of it: `reeve wait " + node.ID + " --for membership=Home`.")
		var roles []string
		for _, assigned := range response.GetNode().GetRoles() {
			roles = append(roles, assigned.GetRole())
		}
		c.warnOfTwoMembers(ctx, cluster, roles...)
	}
	return nil
}

// labelled returns labels with changes. An empty value removes the label.
func labelled(labels, changes map[string]string) map[string]string {
	result := make(map[string]string)
	maps.Copy(result, labels)
	maps.Copy(result, changes)
	maps.DeleteFunc(result, func(_, value string) bool { return value == "" })
	return result
}

// confirmApproval shows a node that waits for approval, and asks where somebody can answer.
func (c *commands) confirmApproval(ctx context.Context, node output.Node, options approveOptions, labels map[string]string) error {
	for _, text := range node.Lines(c.Now()) {
		c.say(text)
	}
	roles := "the roles that it asks for: "
	asked := output.RoleNames(node.Registration.GetRoles())
	names := asked
	if options.noRoles || len(options.roles) > 0 {
		roles, names = "the roles: ", options.roles
		if len(asked) > 0 {
			roles = fmt.Sprintf("other roles than it asks for (%s): ", strings.Join(asked, ", "))
		}
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	c.say(output.Clean("It gets " + roles + strings.Join(names, ", ")))
	node.Labels = labelled(node.Labels, labels)
	c.say(output.Clean("It gets the labels: " + node.LabelText()))
	if options.dryRun || options.yes {
		return nil
	}
	if !c.Interactive {
		return fault.New(fault.Refused, "there is no terminal to ask whether node "+node.ID+" is the machine that it says it is", "Compare the fingerprint, and give --yes.")
	}
	return c.confirm(ctx, "Is that the fingerprint that `reeve status` shows on the machine, and should it become a node?", "`reeve node delete "+node.ID+"` turns the machine away.")
}
