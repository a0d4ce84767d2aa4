package command

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) plugin() *cobra.Command {
	return group("plugin", "The cluster's catalog of plugins", c.pluginAdd(), c.pluginList())
}

func (c *commands) pluginList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the plugins of the catalog and their roles",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				records, err := listPlugins(cmd.Context(), cluster)
				if err != nil {
					return err
				}
				plugins := output.Plugins{Plugins: []output.Plugin{}}
				for _, plugin := range records {
					plugins.Plugins = append(plugins.Plugins, output.NewPlugin(plugin))
				}
				return c.print(plugins)
			})
		},
	}
}

func listPlugins(ctx context.Context, cluster *target.Target) ([]*clusterv1.PluginRecord, error) {
	management, err := cluster.Management(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := management.ListPlugins(ctx, &clusterv1.ListPluginsRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "the plugins cannot be listed", "")
	}
	return response.GetPlugins(), nil
}

// addOptions are the flags of `reeve plugin add`.
type addOptions struct {
	node   string
	grants []string
	dryRun bool
}

func (c *commands) pluginAdd() *cobra.Command {
	var options addOptions
	cmd := &cobra.Command{
		Use:   "add FILE",
		Short: "Add a plugin to the catalog, or replace its version",
		Long: `add gives the executable FILE to a node, which keeps it and asks it what it offers and wants, and puts it into the catalog. The call is the
approval: every role gets its ConsensusUser and the powers of the host that it wants, and what was granted is printed.

Another version of a plugin that is in the catalog keeps what its roles were granted: powers that it wants beyond that are named and not granted.

--grant grants a power that a role wants, with a parameter in place of the one that it asks for: --grant hostsfile:replace-file:path=/etc/hosts, or as it asks
for it: --grant hostsfile:set-hostname.

With --dry-run the node keeps the executable and asks it all the same, since nothing else tells what it is; the catalog does not change.`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			overrides, err := parseGrants(options.grants)
			if err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.addPlugin(cmd.Context(), cluster, given[0], options, overrides)
			})
		},
	}
	cmd.Flags().StringVar(&options.node, "node", "", "the node that takes the executable (default: the local one, or the only one)")
	cmd.Flags().StringArrayVar(&options.grants, "grant", nil, "ROLE:NAME[:KEY=VALUE]: grant a power, and set a parameter of it; may be repeated")
	cmd.Flags().BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	complete(cmd, "node", c.nodeNames)
	complete(cmd, "grant", c.completeGrants)
	return cmd
}

func (c *commands) addPlugin(ctx context.Context, cluster *target.Target, file string, options addOptions, overrides []grantParameter) error {
	executable, err := openExecutable(file)
	if err != nil {
		return err
	}
	defer func() { _ = executable.Close() }()
	node, err := cluster.FindNode(ctx, options.node)
	if err != nil {
		return err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return err
	}
	imported, err := importPlugin(ctx, api, executable)
	if err != nil {
		next := "A plugin is an executable for the node's platform that serves reeve.role.v1."
		if status.Code(err) == codes.ResourceExhausted {
			next = "Make room on the disk of the node."
		}
		return fault.FromRPC(err, "node "+node.ID+" does not take "+file, next)
	}
	management, err := cluster.Management(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	catalog, err := management.ListPlugins(ctx, &clusterv1.ListPluginsRequest{})
	if err != nil {
		return fault.FromRPC(err, "the catalog cannot be read", "")
	}
	grants, withheld, err := grantsFor(imported.GetManifest(), find(catalog.GetPlugins(), imported.GetManifest().GetName()), overrides)
	if err != nil {
		return err
	}
	response, err := management.AddPlugin(ctx, &clusterv1.AddPluginRequest{
		Manifest: imported.GetManifest(),
		Digests:  map[string]string{imported.GetPlatform(): imported.GetDigest()},
		Grants:   grants,
		DryRun:   options.dryRun,
	})
	if err != nil {
		return fault.FromRPC(err, "plugin "+imported.GetManifest().GetName()+" cannot be added to the catalog",
			"Run `reeve plugin list` to see what is there.")
	}
	for _, power := range withheld {
		c.say("Not granted, since the version before was not either: " + output.Clean(power) + ". Add the plugin again with --grant " + output.Clean(power) + " to grant it.")
	}
	return c.print(output.AddedPlugin{Plugin: output.NewPlugin(response.GetPlugin()), DryRun: options.dryRun})
}

func openExecutable(file string) (*os.File, error) {
	executable, err := os.Open(file)
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, err, "the plugin cannot be read", "Give the file of the executable.")
	}
	info, err := executable.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Usage, file+" is not a file", "Give the file of the executable.")
	}
	if err != nil {
		return nil, errors.Join(err, executable.Close())
	}
	return executable, nil
}

// importChunk is how much of an executable is sent at a time: well below the MiB that a node takes.
const importChunk = 256 << 10

// importPlugin sends an executable to a node. It has no time limit: how long the transfer takes depends on the link. The node itself bounds how long the
// plugin may take to answer.
func importPlugin(ctx context.Context, api nodev1.NodeServiceClient, from io.Reader) (*nodev1.ImportPluginResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.ImportPlugin(ctx)
	if err != nil {
		return nil, err
	}
	for {
		chunk := make([]byte, importChunk)
		n, err := io.ReadFull(from, chunk)
		if n > 0 {
			// io.EOF says that the node has answered already: CloseAndRecv has its answer.
			if sendErr := stream.Send(&nodev1.ImportPluginRequest{Data: chunk[:n]}); sendErr != nil {
				if errors.Is(sendErr, io.EOF) {
					break
				}
				return nil, sendErr
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}
