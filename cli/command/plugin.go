package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) plugin() *cobra.Command {
	cmd := group("plugin", "The cluster's catalog of plugins", c.pluginNew(), c.pluginAdd(), c.pluginApprove(), c.pluginShow(), c.pluginDiff(), c.pluginTest(), c.pluginReport(), c.pluginGrant(),
		c.pluginWithdraw(),
		c.pluginRemove(), c.pluginList())
	cmd.Long = `A plugin is an executable that offers roles. What its roles may do beyond their own process and directories is what the owner granted of that which they ask
for: a version that asks for more than was decided waits until the owner approves it, and the version before runs on.`
	return cmd
}

func (c *commands) pluginList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the plugins of the catalog and their roles",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			records, err := listPlugins(ctx, cluster)
			if err != nil {
				return err
			}
			var plugins output.Plugins
			for _, plugin := range records {
				plugins.Plugins = append(plugins.Plugins, output.NewPlugin(plugin))
			}
			return c.print(plugins)
		}),
	}
}

func listPlugins(ctx context.Context, cluster *target.Target) ([]*clusterv1.PluginRecord, error) {
	response, err := cluster.API().ListPlugins(ctx, &clusterv1.ListPluginsRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot list the plugins", "")
	}
	return response.GetPlugins(), nil
}

// find returns the catalog's entry of a plugin; nil if there is none.
func find(plugins []*clusterv1.PluginRecord, name string) *clusterv1.PluginRecord {
	for _, plugin := range plugins {
		if plugin.GetName() == name {
			return plugin
		}
	}
	return nil
}

// getPlugin returns the catalog's entry of a plugin that the command line names.
func getPlugin(ctx context.Context, cluster *target.Target, name string) (*clusterv1.PluginRecord, error) {
	plugins, err := listPlugins(ctx, cluster)
	if err != nil {
		return nil, err
	}
	record := find(plugins, name)
	if record == nil {
		return nil, fault.New(fault.NotFound, "the catalog has no plugin "+name, "Run `reeve plugin list` to see the plugins.")
	}
	return record, nil
}

func (c *commands) pluginShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what the catalog holds of a plugin, and where it runs",
		Long: `show shows the version of a plugin that runs, what its roles are granted and what was refused to them, the version that waits for the owner with what it
asks for, and the nodes that have roles of it.`,
		Example: "  reeve plugin show lighthouse",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			record, err := getPlugin(ctx, cluster, given[0])
			if err != nil {
				return err
			}
			nodes, err := cluster.ListNodes(ctx)
			if err != nil {
				return err
			}
			if err := c.print(output.PluginShown{Plugin: output.NewPlugin(record), Nodes: whereItRuns(record, nodes)}); err != nil {
				return err
			}
			if record.GetWaiting() != nil {
				c.sayWaiting(record.GetName())
			}
			return nil
		}),
	}
	completeArguments(cmd, c.pluginNames())
	return cmd
}

// whereItRuns are the roles of a plugin on the nodes that have them.
func whereItRuns(record *clusterv1.PluginRecord, nodes []*clusterv1.Node) []output.PluginNode {
	var found []output.PluginNode
	for _, node := range nodes {
		for _, role := range output.NewRoles(node).Roles {
			if !offers(record.GetManifest(), role.Role) {
				continue
			}
			one := output.PluginNode{NodeID: node.GetRecord().GetId(), Role: role.Role}
			if role.Instance != nil {
				one.State, one.Version, one.RolledBack = output.State(role.Instance.GetState()), role.Instance.GetPluginVersion(), role.Instance.GetRolledBack()
			}
			found = append(found, one)
		}
	}
	return found
}

// sayWaiting says what the owner can do about a version that waits.
func (c *commands) sayWaiting(plugin string) {
	plugin = output.Clean(plugin)
	c.say("Run `reeve plugin approve " + plugin + "` to approve what waits, `reeve plugin diff " + plugin + "` to compare it with what runs.")
}
