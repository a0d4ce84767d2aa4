package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// reportOn reads the report on an executable to add, before anything is sent: the cluster would refuse one on another executable. None: no file is named.
func (c *commands) reportOn(executable, file string) ([][]byte, error) {
	if file == "" {
		return nil, nil
	}
	envelope, signed, err := readReport(file)
	if err != nil {
		return nil, err
	}
	report, err := verified(file, signed, signed.Key)
	if err != nil {
		return nil, err
	}
	if err := isAbout(report, file, executable); err != nil {
		return nil, err
	}
	if report.Result() != attest.Passed {
		c.say("The report says that the plugin does not conform: `reeve plugin report show " + file + "` shows why.")
	}
	return [][]byte{envelope}, nil
}

func (c *commands) reportAdd() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "add FILE",
		Short: "Add a report on an executable that is in the catalog already",
		Long: `add gives the cluster a report on an executable that its catalog has: of a version that runs, that waits or that ran before, and of the built-in plugins as well. It
takes the place of a report of an earlier run. Its signature must be that of the owner key, or of an operator whose role is owner.

A report goes with its executable: when the catalog has no use for that any more, and with the plugin.`,
		Example: "  reeve plugin report add curator.report",
		RunE: func(cmd *cobra.Command, given []string) error {
			file := given[0]
			envelope, signed, err := readReport(file)
			if err != nil {
				return err
			}
			report, err := verified(file, signed, signed.Key)
			if err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				plugin, err := pluginWith(cmd.Context(), cluster, report)
				if err != nil {
					return err
				}
				response, err := cluster.API().AddPluginReport(cmd.Context(), &clusterv1.AddPluginReportRequest{Plugin: plugin, Digest: report.Digest, Report: envelope, DryRun: dryRun})
				return c.answer(output.NewReportAdded(response.GetPlugin(), report.Digest, dryRun), fault.FromRPC(err, "cannot add the report on plugin "+output.Clean(plugin), "`reeve plugin report show "+file+"` shows what it says."))
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

// pluginWith returns the plugin of the catalog that has the executable which a report is about.
func pluginWith(ctx context.Context, cluster *target.Target, report *attest.Report) (string, error) {
	plugins, err := listPlugins(ctx, cluster)
	if err != nil {
		return "", err
	}
	for _, plugin := range plugins {
		if slices.Contains(executables(plugin), report.Digest) {
			return plugin.GetName(), nil
		}
	}
	return "", fault.New(fault.NotFound, "the catalog has no executable with the digest "+report.Digest+", which the report is about",
		"Add the plugin with its report: `reeve plugin add FILE --report REPORT`.")
}

// executables are the digests of all versions that a record holds, of the one that runs first.
func executables(plugin *clusterv1.PluginRecord) (digests []string) {
	for _, version := range []map[string]string{plugin.GetDigests(), plugin.GetWaiting().GetDigests(), plugin.GetPrevious().GetDigests()} {
		for _, platform := range slices.Sorted(maps.Keys(version)) {
			digests = append(digests, version[platform])
		}
	}
	return digests
}

func (c *commands) reportGet() *cobra.Command {
	var digest string
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print a signed report that the cluster has",
		Long: `get prints the signed report on a plugin as it was given to the cluster: that on the version which runs, or on the executable whose digest --digest gives. reeve
plugin report verify checks it anywhere, by the key that signed it.`,
		Example: "  reeve plugin report get lighthouse > lighthouse.report",
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			plugin, err := getPlugin(ctx, cluster, given[0])
			if err != nil {
				return err
			}
			wanted, err := reported(plugin, digest)
			if err != nil {
				return err
			}
			response, err := cluster.API().GetPluginReport(ctx, &clusterv1.GetPluginReportRequest{Plugin: plugin.GetName(), Digest: wanted})
			if err != nil {
				return fault.FromRPC(err, "cannot fetch the report on plugin "+given[0], "Run `reeve plugin show "+given[0]+"` to see its reports.")
			}
			return c.printEnvelope(response.GetReport())
		}),
	}
	cmd.Flags().StringVar(&digest, "digest", "", "the `DIGEST` of the executable (default: that of the version that runs)")
	completeArguments(cmd, c.pluginNames())
	return cmd
}

// reported returns the digest of the executable whose report is meant.
func reported(plugin *clusterv1.PluginRecord, digest string) (string, error) {
	var found []string
	for _, of := range executables(plugin) {
		if slices.ContainsFunc(plugin.GetReports(), func(report *clusterv1.ConformanceReport) bool { return report.GetDigest() == of }) && (digest == "" || digest == of) {
			found = append(found, of)
		}
	}
	running := slices.Collect(maps.Values(plugin.GetDigests()))
	if first := slices.DeleteFunc(slices.Clone(found), func(of string) bool { return !slices.Contains(running, of) }); len(first) > 0 {
		found = first
	}
	name := output.Clean(plugin.GetName())
	switch len(found) {
	case 0:
		return "", fault.New(fault.NotFound, "the cluster has no such report on plugin "+name, "Run `reeve plugin show "+name+"` to see its reports; `reeve plugin report add FILE` adds one.")
	case 1:
		return found[0], nil
	}
	return "", fault.New(fault.Usage, fmt.Sprintf("there are reports on %d executables of plugin %s: %s", len(found), name, output.Clean(strings.Join(found, ", "))), "Give one of them with --digest.")
}

// printEnvelope prints a signed report that the cluster gave, if it is one.
func (c *commands) printEnvelope(envelope []byte) error {
	signed, err := attest.Open(envelope)
	if err == nil {
		_, err = signed.Verify(signed.Key)
	}
	text := string(envelope)
	if err == nil && output.CleanLines(text) != text {
		err = fmt.Errorf("it has characters that are not printed")
	}
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the cluster's answer is not a valid report", "")
	}
	_, err = c.Stdout.Write(envelope)
	return err
}
