package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// describedEvents is how many events a description has: those that fit on a screen below the rest.
const describedEvents = 10

const showConfiguration = "show-configuration"

func (c *commands) describe() *cobra.Command {
	return group("describe", "Show everything that is known of a node or a role", c.describeNode(), c.describeRole())
}

func (c *commands) describeNode() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "node NODE",
		Short: "Show everything that is known of a node",
		Long: `node shows what a node says of itself, what the cluster knows of it, its store, its roles and its last events. What cannot be read is named, and the
rest is shown.`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			description, err := c.nodeDescription(ctx, cluster, node, show)
			if err != nil {
				return err
			}
			return c.print(description)
		}),
	}
	cmd.Flags().BoolVar(&show, showConfiguration, false, "show the values in the configurations of the roles (with -o json or yaml)")
	return cmd
}

func (c *commands) describeRole() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "role NODE ROLE",
		Short: "Show everything that is known of a role on a node",
		Long: `role shows the state of a role on a node, its last failure and what it then wrote, its remit, its configuration and its last events. Of the
configuration it shows the structure; --show-configuration shows the values, too.`,
		RunE: c.onNode(func(ctx context.Context, cluster *target.Target, node target.Node, given []string) error {
			description, err := c.roleDescription(ctx, cluster, node, given[1], show)
			if err != nil {
				return err
			}
			return c.print(description)
		}),
	}
	cmd.Flags().BoolVar(&show, showConfiguration, false, "show the values in the configuration")
	return cmd
}

// known is what several questions have brought, and what they have not.
type known struct {
	status  *nodev1.Status
	events  []*nodev1.Event
	node    *clusterv1.Node
	plugins []*clusterv1.PluginRecord
	missing []output.Missing
	// first is the error of the first question that had no answer.
	first error
}

// ask notes what a question has not brought.
func (k *known) ask(what string, err error) {
	if err == nil {
		return
	}
	if k.first == nil {
		k.first = err
	}
	k.missing = append(k.missing, missing(what, err))
}

// missing is something that could not be read.
func missing(what string, err error) output.Missing {
	reason := err.Error()
	if problem := (*fault.Error)(nil); errors.As(err, &problem) {
		reason = problem.What
	}
	return output.Missing{What: what, Reason: reason}
}

// gather asks the node, and the cluster, for what a description needs. An error is only that of ctx.
func (c *commands) gather(ctx context.Context, cluster *target.Target, node target.Node, tail uint32) (*known, error) {
	k := &known{}
	api, err := cluster.NodeAPI(ctx, node)
	if err == nil {
		k.status, err = askStatus(ctx, api, node)
	}
	k.ask("what the node says of itself", err)
	if err == nil {
		events, err := c.readEvents(ctx, api, node, eventOptions{tail: tail})
		k.ask("events", err)
		if err == nil {
			k.events = events
		}
	}
	k.node, err = getNode(ctx, cluster, node)
	k.ask("what the cluster knows of the node", err)
	return k, ctx.Err()
}

func (c *commands) nodeDescription(ctx context.Context, cluster *target.Target, node target.Node, show bool) (output.NodeDescription, error) {
	k, err := c.gather(ctx, cluster, node, describedEvents)
	if err == nil && k.status == nil && k.node == nil {
		err = k.first
	}
	if err != nil {
		return output.NodeDescription{}, err
	}
	description := output.NodeDescription{ID: node.ID, Events: k.events, Missing: k.missing}
	if k.status != nil {
		description.Self = new(output.NewStatus(k.status))
	}
	if k.node != nil {
		if !show {
			k.node = withoutConfigurations(k.node)
		}
		description.Cluster = new(output.NewNode(k.node))
	}
	return description, nil
}

// withoutConfigurations returns a node with the structure of its roles' configurations only.
func withoutConfigurations(node *clusterv1.Node) *clusterv1.Node {
	node = proto.CloneOf(node)
	for _, assignment := range node.GetRecord().GetRoles() {
		assignment.Configuration = redact.Configuration(assignment.GetConfiguration())
	}
	return node
}

func (c *commands) roleDescription(ctx context.Context, cluster *target.Target, node target.Node, role string, show bool) (output.RoleDescription, error) {
	// The last events of a role may be among older ones of the node.
	k, err := c.gather(ctx, cluster, node, 0)
	if err == nil {
		k.plugins, err = listPlugins(ctx, cluster)
		k.ask("the catalog", err)
		err = ctx.Err()
	}
	if err == nil && k.status == nil && k.node == nil {
		err = k.first
	}
	if err != nil {
		return output.RoleDescription{}, err
	}
	description := output.RoleDescription{NodeID: node.ID, Role: role, Events: lastOf(k.events, role), Missing: k.missing}
	instances := k.status.GetNode().GetInstances()
	if k.status == nil {
		instances = k.node.GetStatus().GetInstances()
	}
	for _, instance := range instances {
		if instance.GetRole() == role {
			description.Instance = instance
		}
	}
	if !show {
		k.node = withoutConfigurations(k.node)
	}
	for _, assignment := range k.node.GetRecord().GetRoles() {
		if assignment.GetRole() == role {
			description.Assignment = assignment
		}
	}
	for _, plugin := range k.plugins {
		for _, offered := range output.NewPlugin(plugin).Roles {
			if offered.Role == role {
				description.Remit = &offered
			}
		}
	}
	if description.Instance == nil && description.Assignment == nil && len(k.missing) == 0 {
		return description, fault.New(fault.NotFound, fmt.Sprintf("node %s has no role %s", node.ID, role),
			"Run `reeve node role list "+node.ID+"` to see the roles of the node.")
	}
	return description, nil
}

// lastOf returns the last events that are about a role.
func lastOf(events []*nodev1.Event, role string) []*nodev1.Event {
	var about []*nodev1.Event
	for _, event := range events {
		if event.GetRole() == role {
			about = append(about, event)
		}
	}
	return about[max(0, len(about)-describedEvents):]
}
