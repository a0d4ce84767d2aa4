package command

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/setup"
)

func (c *commands) init() *cobra.Command {
	var plan setup.Plan
	var public string
	cmd := &cobra.Command{
		Use:   "init (--owner-key FILE | --owner-public-key KEY)",
		Short: "Set up this machine as the first node of a new cluster",
		Long: `init writes the parameters with which reeved on this machine makes a new cluster, and makes the directories that they name. It starts nothing, and
never changes a file that is there. --dry-run shows what it would do.

The owner of the cluster is known by a key. With --owner-key a new one is made in a file that is not there yet: keep that file where no machine of
the cluster can read it. With --owner-public-key the private half never comes to this machine.`,
		Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if public != "" {
				var err error
				if plan.OwnerKey, err = keyfile.Public(public); err != nil {
					return err
				}
			}
			// The command line's own --owner-key: to init it is the key of the owner-to-be.
			plan.OwnerKeyFile = c.options.OwnerKeyFile
			return c.setUp(plan)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&public, "owner-public-key", "", "the owner's public key, or a file with it, in place of --owner-key")
	flags.StringVar(&plan.Address, "address", "", "the IP address by which others reach this machine (default: the one by which it speaks to the world)")
	flags.StringVar(&plan.CuratorListen, "curator-listen", "", "host:port on which the cluster API is served (default port 7443 of the address)")
	flags.StringVar(&plan.APIListen, "api-listen", "", "host:port on which the node's own API is served (default port 7444 of the address)")
	flags.StringVar(&plan.MetricsListen, "metrics-listen", "", "host:port on which metrics are served to everybody who reaches it (default: nowhere)")
	flags.StringVar(&plan.HostsFile, "hosts-file", "", "give the node the role hostsfile, for this file, such as /etc/hosts")
	flags.StringVar(&plan.LogFile, "log-file", "", "write the log of reeved to this file (default: its standard error, which is the journal)")
	flags.StringVar(&plan.File, "file", setup.DefaultFile, "where to write the parameters")
	flags.StringVar(&plan.State, "state", setup.DefaultState, "the directory in which the node keeps everything")
	flags.StringVar(&plan.Run, "run", setup.DefaultRun, "the directory of its sockets, on a tmpfs")
	flags.StringVar(&plan.Plugins, "plugins", "", "directory with the built-in plugins (default: plugins beside reeve)")
	flags.BoolVar(&plan.DryRun, "dry-run", false, "show what would be done, and do nothing")
	return cmd
}

func (c *commands) setUp(plan setup.Plan) error {
	if plan.Plugins == "" {
		plan.Plugins = c.beside("plugins")
	}
	result, err := setup.Make(plan)
	if err != nil {
		return err
	}
	parameters, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(result.Parameters)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the parameters cannot be shown", "")
	}
	// protojson puts spaces where it likes, so that nobody relies on them.
	var plain any
	if err := json.Unmarshal(parameters, &plain); err == nil {
		parameters, err = json.Marshal(plain)
		if err != nil {
			return err
		}
	}
	document := output.Setup{
		DryRun: plan.DryRun, File: plan.File, Parameters: parameters, OwnerKeyFile: plan.OwnerKeyFile, OwnerKeyMade: result.OwnerKeyMade,
		Made: result.Made, Continues: result.Continues, Text: string(result.Document),
	}
	if owner := result.Parameters.GetBootstrap().GetOwnerPublicKey(); len(owner) > 0 {
		document.OwnerPublicKey = keyfile.Text(owner)
	}
	if err := c.print(document); err != nil {
		return err
	}
	if !plan.DryRun {
		c.say(c.afterInit(plan, result))
	}
	return nil
}

// afterInit is what the operator does next.
func (c *commands) afterInit(plan setup.Plan, result *setup.Result) string {
	var text strings.Builder
	if result.Continues {
		fmt.Fprintf(&text, "\nThe node in %s has a cluster already, and goes on as it was: it keeps the owner and the roles of that cluster.\n", plan.State)
	}
	start := "systemctl enable --now reeved"
	if _, err := os.Stat("/run/systemd/system"); err != nil || plan.File != setup.DefaultFile {
		start = c.beside("reeved") + " --parameters " + plan.File
	}
	status := c.Name + " status"
	if plan.Run != setup.DefaultRun {
		status = c.Name + " --socket " + plan.Run + "/node.sock status"
	}
	fmt.Fprintf(&text, "\nThis machine is set up. Next:\n  %s\n  %s", start, status)
	if result.OwnerKeyMade {
		fmt.Fprintf(&text, "\nWhoever has %s owns the cluster: move it to a place that no machine of the cluster can read, and keep a copy.", plan.OwnerKeyFile)
	}
	return text.String()
}
