package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func (c *commands) pluginDiff() *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "diff NAME [FILE]",
		Short: "Compare the version of a plugin that runs with the one that waits, or with a file",
		Long: `diff shows how the version of a plugin that waits for the owner differs from the one that runs: in what it is, what it offers and what it asks for. With
FILE, the executable is given to a node, which asks it what it is, and compared in place of the one that waits; the catalog does not change.

The exit code is 0 whether they differ or not; the field "same" of the document says which.`,
		Example: `  reeve plugin diff lighthouse
  reeve plugin diff lighthouse ./lighthouse -o json`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			return c.diffPlugin(ctx, cluster, given[0], optional(given[1:]), node)
		}),
	}
	cmd.Flags().StringVar(&node, "node", "", "the node that takes the executable (default: the local one, or the only one)")
	complete(cmd, "node", c.nodeNames)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return c.pluginNames().asCobra(cmd, given, begun)
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	return cmd
}

func (c *commands) diffPlugin(ctx context.Context, cluster *target.Target, name, file, node string) error {
	record, err := getPlugin(ctx, cluster, name)
	if err != nil {
		return err
	}
	after := record.GetWaiting()
	if file != "" {
		imported, err := importFile(ctx, cluster, file, node)
		if err != nil {
			return err
		}
		if imported.GetManifest().GetName() != name {
			return fault.New(fault.Usage, file+" is plugin "+output.Clean(imported.GetManifest().GetName())+", not "+name, "Give the name of the plugin that the file is.")
		}
		after = &clusterv1.PluginVersion{
			Version: imported.GetManifest().GetVersion(), Digests: map[string]string{imported.GetPlatform(): imported.GetDigest()}, Manifest: imported.GetManifest(),
		}
	}
	if after == nil {
		return fault.New(fault.Refused, "no version of plugin "+name+" waits for approval", "Give a file to compare what runs with: `reeve plugin diff "+name+" FILE`.")
	}
	before := &clusterv1.PluginVersion{Version: record.GetVersion(), Digests: record.GetDigests(), Manifest: record.GetManifest(), Added: record.GetAdded()}
	document := output.PluginDiff{Name: name, File: file, After: *output.NewPluginVersion(after, record), Changes: differences(before, after, file != "")}
	if record.GetVersion() != "" {
		document.Before = output.NewPluginVersion(before, record)
	}
	document.Same = len(document.Changes) == 0
	if err := c.print(document); err != nil {
		return err
	}
	if file == "" {
		c.sayWaiting(name)
	}
	return nil
}

// differences are those of two versions of a plugin. Of a file only the platforms that it is for are looked at.
func differences(before, after *clusterv1.PluginVersion, file bool) []output.PluginDetail {
	changes := []output.PluginDetail{}
	add := func(role, what, before, after string) {
		if before != after {
			changes = append(changes, output.PluginDetail{Role: role, What: what, Before: before, After: after})
		}
	}
	add("", "version", before.GetVersion(), after.GetVersion())
	platforms := slices.Sorted(maps.Keys(after.GetDigests()))
	if !file {
		platforms = union(platforms, slices.Sorted(maps.Keys(before.GetDigests())))
	}
	for _, platform := range platforms {
		add("", "digest "+platform, before.GetDigests()[platform], after.GetDigests()[platform])
	}
	for _, name := range union(roleNamesOf(before.GetManifest()), roleNamesOf(after.GetManifest())) {
		one, other := offered(before.GetManifest(), name), offered(after.GetManifest(), name)
		add(name, "role", presence(one), presence(other))
		lists := func(what string, before, after []string) {
			for _, value := range union(before, after) {
				add(name, what, where(before, value), where(after, value))
			}
		}
		add(name, "consensus_user", one.GetConsensusUser(), other.GetConsensusUser())
		lists("grant", output.GrantTexts(one.GetGrants()), output.GrantTexts(other.GetGrants()))
		lists("requires", one.GetRequires(), other.GetRequires())
		lists("provides", one.GetProvides(), other.GetProvides())
		lists("gives_up", one.GetGivesUp(), other.GetGivesUp())
		lists("port", portTexts(one), portTexts(other))
		if one == nil || other == nil {
			// What a role that is new, or gone, is in the rest differs from nothing.
			continue
		}
		add(name, "starts_from_cache", strconv.FormatBool(one.GetStartsFromCache()), strconv.FormatBool(other.GetStartsFromCache()))
		add(name, "ends_with_core", strconv.FormatBool(one.GetEndsWithCore()), strconv.FormatBool(other.GetEndsWithCore()))
		add(name, "in_split", output.InSplit(one.GetInSplit()), output.InSplit(other.GetInSplit()))
		add(name, "stop_grace", stopGrace(one), stopGrace(other))
		add(name, "summary", one.GetSummary(), other.GetSummary())
		if one.GetConfigurationSchema() != other.GetConfigurationSchema() {
			add(name, "schema", schema(one), "another one, "+schema(other))
		}
	}
	return changes
}

func stopGrace(role *rolev1.RoleManifest) string {
	return output.StopGrace(limits.StopGraceOf(role.GetStopGrace()).Seconds())
}

func presence(role *rolev1.RoleManifest) string {
	if role == nil {
		return ""
	}
	return "offered"
}

func schema(role *rolev1.RoleManifest) string {
	return fmt.Sprintf("%d bytes", len(role.GetConfigurationSchema()))
}

// where is a value if it is in a list, and empty otherwise.
func where(list []string, value string) string {
	if slices.Contains(list, value) {
		return value
	}
	return ""
}

// union is what is in one list or in the other, sorted, each once.
func union(one, other []string) []string {
	all := slices.Concat(one, other)
	slices.Sort(all)
	return slices.Compact(all)
}

func roleNamesOf(manifest *rolev1.Manifest) []string {
	var names []string
	for _, role := range manifest.GetRoles() {
		names = append(names, role.GetName())
	}
	return names
}

func portTexts(role *rolev1.RoleManifest) []string {
	var texts []string
	for _, port := range role.GetPorts() {
		texts = append(texts, fmt.Sprintf("%s %d/%s", port.GetName(), port.GetNumber(), port.GetProtocol()))
	}
	return texts
}
