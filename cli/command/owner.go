package command

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) owner() *cobra.Command {
	return group("owner", "The owner key of the cluster", c.ownerReplace(), c.newKey("owner"))
}

func (c *commands) ownerReplace() *cobra.Command {
	var public string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "replace --public-key KEY",
		Short: "Put another owner key in the place of one that was lost",
		Long: `replace is the way out when the owner key is lost: it puts another one in its place. Nothing proves that the caller may do that but that it is root, or the
user of the node's core, on a node where a curator runs; so it goes by the node's local socket only (--dir or --socket), never over the network.

What the former key signed, and the sessions that it began, are refused from then on, and so are the machines that have registered with its tickets and are no
members yet: it lists them. Operators and their sessions stay as they are.

KEY is the public key as ` + "`reeve owner key`" + ` prints it, or the name of a file that holds it so, or as PEM.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.options.Address != "" {
				return notLocal("--address leads to it over the network")
			}
			if public == "" {
				return fault.New(fault.Usage, "the new owner key is not given", "Give --public-key; `reeve owner key FILE` makes a key.")
			}
			key, err := keyfile.Public(public)
			if err != nil {
				return err
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				if !cluster.HasLocal() {
					return notLocal("context " + cluster.Context() + " leads to it over the network")
				}
				return c.replaceOwner(cmd.Context(), cluster, key, dryRun)
			})
		},
	}
	cmd.Flags().StringVar(&public, "public-key", "", "the new owner's public key, or a `FILE` with it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, and change nothing")
	return cmd
}

func notLocal(why string) error {
	return fault.New(fault.Refused, "the owner key can only be replaced on a node itself, where the kernel says who asks; "+why,
		"Run it as root on a node where a curator runs: `reeve owner replace --socket "+target.HostSocket+" --public-key KEY`.")
}

func (c *commands) replaceOwner(ctx context.Context, cluster *target.Target, key []byte, dryRun bool) error {
	node, err := cluster.FindNode(ctx, target.Self)
	if err != nil {
		return err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := api.ReplaceOwner(bounded, &nodev1.ReplaceOwnerRequest{OwnerPublicKey: key, DryRun: dryRun})
	if err != nil {
		return fault.FromRPC(err, "node "+node.ID+" cannot replace the owner key", "Run it on a node where a curator runs; `reeve status` shows the roles of this one.")
	}
	if err := c.print(output.OwnerReplaced{Node: node.ID, PublicKey: keyfile.Text(key), WaitingNodes: response.GetWaitingNodes(), DryRun: dryRun}); err != nil {
		return err
	}
	if !dryRun && cluster.Directory() != "" {
		c.say("The owner key in " + filepath.Join(cluster.Directory(), "owner.key") + " is no longer valid: put the new one there, or give --owner-key.")
	}
	return nil
}
