package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/proto/ticket"
)

func (c *commands) init() *cobra.Command {
	var plan setup.Plan
	var public, volume, seal, join string
	var labels []string
	var again bool
	cmd := &cobra.Command{
		Use:   "init (--owner-key FILE | --owner-public-key KEY | --join FILE)",
		Short: "Set up this machine as a node, of a new cluster or of one that there is",
		Long: `init writes the parameters with which reeved on this machine makes a new cluster or registers with one that there is, and makes the directories that they
name. It starts nothing, and never changes a file that is there. --dry-run shows what it would do.

The owner of the cluster is known by a key. With --owner-key a new one is made in a file that is not there yet: keep that file where no machine of
the cluster can read it. With --owner-public-key the private half never comes to this machine.

With --join the machine registers with the cluster whose ticket ("reeve ticket create") is in FILE, or with - comes by a pipe: a ticket is a secret, and has no
business on a command line. It is kept beside the parameters, for reeved alone. --role asks for roles, --label for labels: the node gets them when an owner
approves it.

--volume says where the node keeps its data: plain, which is NOT ENCRYPTED; fscrypt, an encrypted file system in an image of 8 GiB (fscrypt:SIZE: of
another size; fscrypt:directory: the file system of the data directory encrypts it); or luks:DEVICE, an empty block device. --seal says what protects the
node's secrets while the machine is off: file, the permissions of a file, or tpm2, its TPM, sealed to PCR 7 (tpm2:PCR,PCR: to others). An encrypted volume
needs --recovery-recipient, the public half of a recovery key that is kept elsewhere.`,
		Example: `  reeve init --owner-key /media/stick/owner.key
  reeve init --join ticket --role consensus --role curator
  reeve init --owner-public-key owner.pub --volume luks:/dev/disk/by-id/ata-x --seal tpm2 --recovery-recipient age1…`,
		RunE: func(*cobra.Command, []string) error {
			if public != "" {
				var err error
				if plan.OwnerKey, err = keyfile.Public(public); err != nil {
					return err
				}
			}
			var err error
			if plan.Labels, err = parseLabels(labels, false); err != nil {
				return err
			}
			if join != "" {
				if plan.Ticket, err = c.readTicket(join); err != nil {
					return err
				}
			}
			if plan.Volume, err = setup.ParseVolume(volume); err != nil {
				return err
			}
			if plan.Seal, err = setup.ParseSeal(seal); err != nil {
				return err
			}
			if err := c.fitsMachine(&plan); err != nil {
				return err
			}
			if !again {
				if err := setup.CheckMark(plan.File, filepath.Join(plan.State, "system")); err != nil {
					return err
				}
			}
			if err := setup.CheckPassable(plan.State, plan.Run); err != nil {
				return err
			}
			// The command line's own --owner-key: to init it is the key of the owner-to-be.
			plan.OwnerKeyFile = c.options.OwnerKeyFile
			if err := c.setUp(plan); err != nil || !again || plan.DryRun {
				return err
			}
			return setup.ForgetMark(plan.File)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&again, "again", false, "set up a machine that was a node before, and give that node up")
	flags.StringVar(&public, "owner-public-key", "", "the owner's public key, or a file with it, in place of --owner-key")
	flags.StringVar(&join, "join", "", "register with the cluster whose ticket is in this file; - is the standard input")
	flags.StringSliceVar(&plan.Asks, "role", nil, "ask for this `ROLE`, with --join; may be repeated")
	flags.StringArrayVar(&labels, "label", nil, "ask for a label `KEY=VALUE`, with --join; may be repeated")
	flags.StringVar(&plan.Address, "address", "", "the IP address by which others reach this machine, for good (default: the addresses that it has at the time)")
	flags.StringSliceVar(&plan.Interfaces, "interface", nil, "of which interfaces these addresses are, `NAME` or network; may be repeated (default: those of the default route)")
	flags.StringVar(&plan.CuratorListen, "curator-listen", "", "host:port on which the cluster API is served; no host: on all addresses (default port 7443 of --address, or of all)")
	flags.StringVar(&plan.APIListen, "api-listen", "", "host:port on which the node's own API is served; no host: on all addresses (default port 7444 of --address, or of all)")
	flags.StringVar(&plan.MetricsListen, "metrics-listen", "", "host:port on which metrics are served to everybody who reaches it (default: nowhere)")
	flags.StringVar(&plan.HostsFile, "hosts-file", "", "give the node the role hostsfile, for this file, such as /etc/hosts")
	flags.StringVar(&plan.LogFile, "log-file", "", "write the log of reeved to this file (default: its standard error, which is the journal)")
	flags.StringVar(&plan.File, "file", setup.DefaultFile, "where to write the parameters")
	flags.StringVar(&plan.State, "state", setup.DefaultState, "the directory in which the node keeps everything")
	flags.StringVar(&plan.Run, "run", setup.DefaultRun, "the directory of its sockets, on a tmpfs")
	flags.StringVar(&plan.Plugins, "plugins", "", "directory with the built-in plugins (default: plugins beside reeve)")
	flags.StringVar(&volume, "volume", "", "where the node keeps its data: "+setup.VolumeForms+" (default plain, which is NOT ENCRYPTED)")
	flags.StringVar(&seal, "seal", "", "what protects the node's secrets: "+setup.SealForms+" (default file)")
	flags.StringVar(&plan.RecoveryRecipient, "recovery-recipient", "", "the public half (`age1…`) of the recovery key, which an encrypted volume needs")
	complete(cmd, "volume", fixed("plain", "fscrypt", "fscrypt:directory", "luks:"))
	complete(cmd, "seal", fixed("file", "tpm2"))
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
		return fault.Wrap(fault.Failed, err, "cannot show the parameters", "")
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
		Address: plan.Address,
	}
	for _, a := range result.Addresses {
		if document.Address == "" && a.Reason == "" {
			document.Address = a.Addr().String()
		}
		if a.Addr().IsLoopback() || a.Addr().IsLinkLocalUnicast() {
			continue
		}
		document.Addresses = append(document.Addresses, output.MachineAddress{Address: a.Addr().String(), Interface: a.Interface, Reason: a.Reason})
	}
	if owner := result.Parameters.GetBootstrap().GetOwnerPublicKey(); len(owner) > 0 {
		document.OwnerPublicKey = keyfile.Text(owner)
	}
	if err := c.print(document); err != nil {
		return err
	}
	if line := c.ofAddresses(plan, result); line != "" {
		c.say(line)
	}
	if !plan.DryRun {
		c.say(c.afterInit(plan, result))
	}
	return nil
}

// ofAddresses says by which address others reach the node, where that is not a matter of course; empty: it is.
func (c *commands) ofAddresses(plan setup.Plan, result *setup.Result) string {
	if plan.Address != "" {
		return ""
	}
	if !address.ReachesItself(result.Addresses) {
		return "\nThe loopback interface is down, without which nothing on this machine reaches the node: `ip link set lo up`."
	}
	chosen := address.Chosen(result.Addresses)
	var choices []string
	for _, a := range result.Addresses {
		// That a machine has IPv6 besides is no choice.
		if a.Choice && a.Addr().Is4() == result.Addresses[0].Addr().Is4() {
			choices = append(choices, a.Addr().String()+" of "+a.Interface)
		}
	}
	switch {
	case len(chosen) == 0:
		return "\nThis machine has no address now by which others could reach it. The node waits for one; `" + c.Name + " doctor` lists those that there are, and --interface or --address takes one of them."
	case len(choices) > 1:
		return "\nOthers reach this machine at " + chosen[0] + ", the first of " + strings.Join(choices, ", ") + ". If that is not right, name another with --interface or --address."
	}
	return ""
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
	if plan.Ticket != "" {
		text.WriteString("\nThen, where the cluster is managed, unless the ticket approves by itself:\n  reeve node list\n  reeve node approve NODE\n" +
			"The node's key, which is shown there, has to be the one that status shows here.")
	}
	if result.OwnerKeyMade {
		fmt.Fprintf(&text, "\nWhoever has %s owns the cluster: move it to a place that no machine of the cluster can read, and keep a copy.", plan.OwnerKeyFile)
	}
	if plan.RecoveryRecipient != "" {
		fmt.Fprintf(&text, "\nThe recovery key of %s opens the volume when nothing else can: `%s node unlock --recovery-key FILE`.", plan.RecoveryRecipient, c.Name)
		if plan.Seal.GetTpm2() == nil {
			text.WriteString(" With --seal file nothing else does: it is needed after every start of the machine.")
		}
	}
	return text.String()
}

// readTicket reads a ticket from a file or the standard input, and returns its text if it is a good one.
func (c *commands) readTicket(from string) (string, error) {
	if strings.HasPrefix(from, ticket.Prefix) {
		return "", fault.New(fault.Usage, "--join takes a file with the ticket, and not the ticket: whoever sees command lines has seen it now",
			"Revoke it (`reeve ticket revoke`), make another one, and give the file that it is in, or - and a pipe.")
	}
	name, in := from, c.Stdin
	if from == "-" {
		name = "the standard input"
	} else {
		file, err := os.Open(from)
		if err != nil {
			code := fault.Refused
			if errors.Is(err, fs.ErrNotExist) {
				code = fault.NotFound
			}
			return "", fault.Wrap(code, err, "cannot read the ticket", "Give the file that `reeve ticket create --output-file FILE` wrote.")
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	parsed, err := ticket.Read(in)
	if err != nil {
		return "", fault.New(fault.Usage, name+": "+err.Error(), "Give all of what `reeve ticket create` printed.")
	}
	return ticket.Encode(parsed)
}
