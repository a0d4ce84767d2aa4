package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const dryRunUsage = "check everything and say what would be done, and change nothing"

func (c *commands) roleList() *cobra.Command {
	return &cobra.Command{
		Use:   "list NODE",
		Short: "List the roles of a node",
		Long:  `list shows the roles that a node should run, and what the node last reported of them to the cluster.`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			found, err := getNode(ctx, cluster, node)
			if err != nil {
				return err
			}
			return c.print(output.NewRoles(found))
		}),
	}
}

func (c *commands) roleAdd() *cobra.Command {
	var w waiting
	var file string
	var dryRun, withRequired, show bool
	cmd := &cobra.Command{
		Use:   "add NODE ROLE",
		Short: "Give a role to a node, or another configuration to one that it has",
		Long: `add gives a role to a node and waits until it is Ready there with the configuration. A role that the node has already gets the configuration in place of its former one,
and keeps that without --config. An empty file takes the configuration away. --dry-run says what in the configuration would change.

What a role requires has to be on the same node. On a terminal it is asked whether the node gets that, too, as far as it does not have it; --with-required says so. They are given without
a configuration, all of them in one step or none.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if show && !dryRun {
				return fault.New(fault.Usage, "--"+showConfiguration+" is for --dry-run", "Give --dry-run too, or run `reeve describe role` afterwards.")
			}
			configuration, err := c.readConfiguration(file)
			if err != nil {
				return err
			}
			addition := &roleAddition{role: given[1], configuration: configuration, keep: file == "", dryRun: dryRun, withRequired: withRequired, show: show}
			return c.changeRole(cmd.Context(), &output.RoleChange{Role: given[1], Action: "add", DryRun: dryRun}, given[0], w,
				func(ctx context.Context, cluster *target.Target, node target.Node) error {
					return c.askAddition(ctx, cluster, node, addition)
				}, addition.make)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "file with the configuration of the role, JSON or YAML; - is the standard input")
	cmd.Flags().BoolVar(&show, showConfiguration, false, "with --dry-run, show the values that would change")
	cmd.Flags().BoolVar(&withRequired, "with-required", false, "give the node what the role requires, too, as far as it does not have it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	w.flags(cmd, untilReady, untilStarted, notAtAll)
	completeArguments(cmd, c.nodeNames, c.offeredNames())
	return cmd
}

func (c *commands) roleRemove() *cobra.Command {
	var w waiting
	var dryRun, wipe, yes bool
	cmd := &cobra.Command{
		Use:   "remove NODE ROLE",
		Short: "Take a role from a node",
		Long: `remove takes a role from a node and waits until it has ended there. What it keeps in its directory there stays for when the node has the role again; --wipe has
the node remove that, and the role's logs, and asks on a terminal. What it keeps in the store is the whole cluster's: ` + "`reeve plugin remove --wipe`" + ` removes it.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			confirm := func(ctx context.Context, _ *target.Target, _ target.Node) error {
				c.say("What role " + given[1] + " keeps in its directory on the node, and its logs, are removed.")
				return c.confirmWipe(ctx, yes)
			}
			if !wipe || dryRun {
				confirm = nil
			}
			return c.changeRole(cmd.Context(), &output.RoleChange{Role: given[1], Action: "remove", DryRun: dryRun, Wiped: wipe}, given[0], w, confirm,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, nodeID string, _ *output.RoleChange) (uint64, error) {
					_, err := management.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: nodeID, Role: given[1], DryRun: dryRun, Wipe: wipe})
					return 0, fault.FromRPC(err, fmt.Sprintf("cannot take role %s from node %s", given[1], nodeID),
						"Run `reeve node role list "+nodeID+"` to see the roles of the node.")
				})
		},
	}
	cmd.Flags().BoolVar(&wipe, "wipe", false, "have the node remove the role's data and logs; that cannot be undone")
	cmd.Flags().BoolVar(&yes, "yes", false, "answer the question whether to wipe with yes")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	w.flags(cmd, untilGone, notAtAll)
	return cmd
}

// changeRole makes a change of a node's role, waits for it and prints what became of it. confirm, if it is there, asks somebody first. change returns the generation of the assignment, 0 if there is
// none any more, and may say more in the document.
func (c *commands) changeRole(ctx context.Context, document *output.RoleChange, nodeName string, w waiting, confirm func(context.Context, *target.Target, target.Node) error,
	change func(context.Context, clusterv1.ManagementServiceClient, string, *output.RoleChange) (uint64, error)) error {
	return c.withFound(ctx, nodeName, func(cluster *target.Target, node target.Node) error {
		management, err := cluster.Management(ctx)
		if err != nil {
			return err
		}
		if confirm != nil {
			if err := confirm(ctx, cluster, node); err != nil {
				return err
			}
		}
		generation, err := change(ctx, management, node.ID, document)
		if err != nil {
			return err
		}
		document.NodeID, document.Generation = node.ID, generation
		if w.asked() && !document.DryRun {
			document.Waited = true
			// A role is Blocked until what it requires is Ready.
			for _, required := range document.Required {
				if _, err := c.awaitRole(ctx, cluster, node, required, 0, w); err != nil {
					return err
				}
			}
			if document.Instance, err = c.awaitRole(ctx, cluster, node, document.Role, generation, w); err != nil {
				return err
			}
		}
		if err := c.print(*document); err != nil {
			return err
		}
		if document.Action == "add" && !document.DryRun {
			c.warnOfTwoMembers(ctx, cluster, append(document.Required, document.Role)...)
		}
		return nil
	})
}

// awaitRole waits until a node has made a change of its roles, and returns the instance that it then reports; nil: none.
func (c *commands) awaitRole(ctx context.Context, cluster *target.Target, node target.Node, role string, generation uint64, w waiting) (*clusterv1.InstanceStatus, error) {
	condition := &await.Role{Name: role, NodeID: node.ID, State: w.state(), Generation: generation, BlockedIsFinal: true}
	conditions := []await.Condition{condition}
	if w.state() != await.Started && providesStore(ctx, cluster, role) {
		// What the store does for it takes longer than the role itself, and happens elsewhere.
		conditions = append(conditions, await.Member(w.state() == await.Gone))
	}
	if _, err := c.await(ctx, node.ID, w.timeout, []await.Source{clusterSource(cluster, node.ID)}, conditions...); err != nil {
		return nil, err
	}
	return condition.Instance(), nil
}

// providesStore says whether a role is one by which a node has a member of the consensus store.
func providesStore(ctx context.Context, cluster *target.Target, role string) bool {
	plugins, err := listPlugins(ctx, cluster)
	if err != nil {
		return false // It was changed; that is what the command was for.
	}
	for _, plugin := range plugins {
		if slices.Contains(offered(plugin.GetManifest(), role).GetProvides(), storeCapability) {
			return true
		}
	}
	return false
}

// storeCapability is what a role provides that is a member of the consensus store.
const storeCapability = "reeve.consensus.v1"

func (c *commands) roleRestart() *cobra.Command {
	var w waiting
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restart NODE ROLE",
		Short: "Stop the instance of a role on a node and start another one",
		Long: `restart stops the instance of a role on a node, starts another one and waits until it is Ready. A role that is Failed gets its whole crash budget
back. The node itself is asked, so that it works while the cluster is out of reach.`,
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			return c.restart(ctx, api, node, given[1], dryRun, w)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	w.flags(cmd, untilReady, untilStarted, notAtAll)
	return cmd
}

func (c *commands) restart(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, role string, dryRun bool, w waiting) error {
	document := output.RoleChange{NodeID: node.ID, Role: role, Action: "restart", DryRun: dryRun}
	err := c.replaceInstance(ctx, api, node, &document, w, func(ctx context.Context) (string, error) {
		response, err := api.RestartRole(ctx, &nodev1.RestartRoleRequest{Role: role, DryRun: dryRun})
		return response.GetInstanceId(), fault.FromRPC(err, fmt.Sprintf("cannot restart role %s on node %s", role, node.ID), "Run `reeve status "+node.ID+"` to see the roles of the node.")
	})
	if err != nil {
		return err
	}
	return c.print(document)
}

// replaceInstance waits for another instance of a role. ask has the node replace the present one, and returns its ID.
func (c *commands) replaceInstance(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, document *output.RoleChange, w waiting, ask func(context.Context) (string, error)) error {
	before, err := askStatus(ctx, api, node)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	if document.FormerInstance, err = ask(bounded); err != nil || !w.asked() || document.DryRun {
		return err
	}
	document.Waited = true
	// A role that does not run keeps the name of its last instance until there is another one.
	former := cmp.Or(document.FormerInstance, instanceID(before, document.Role))
	condition := &await.Role{Name: document.Role, NodeID: node.ID, State: w.state(), Former: former, BlockedIsFinal: true}
	_, err = c.await(ctx, node.ID, w.timeout, []await.Source{c.nodeSource(node.ID)}, condition)
	document.Instance = condition.Instance()
	return err
}

func instanceID(status *nodev1.Status, role string) string {
	for _, instance := range status.GetNode().GetInstances() {
		if instance.GetRole() == role {
			return instance.GetInstanceId()
		}
	}
	return ""
}
