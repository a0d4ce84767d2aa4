package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) nodePeers() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "peers NODE [ADDRESS...]",
		Short: "Tell a node on which machines other nodes of its cluster may be",
		Long: `peers is for nodes that do not find each other any more, since all of them got new addresses at once: run it on each machine, with the addresses or DNS names of
the others. The members of the store and the curators are tried there as well; each has to prove by its key who it is, so a wrong address does no harm. As soon as more
than half of the members have found each other, all know the new addresses, and the peers are needed no more.

The addresses take the place of those of the call before, and stay over restarts. Without any, the node forgets them. Those of its parameters (network.peers) stay.
NODE is self for the node of the local socket, which answers while the cluster does not.`,
		Example: `  reeve node peers self 192.0.2.21 192.0.2.22
  reeve node peers self node-2.example.com node-3.example.com
  reeve node peers self`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.withNode(cmd.Context(), given[0], func(api nodev1.NodeServiceClient, node target.Node) error {
				return c.setPeers(cmd.Context(), api, node, given[1:], dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	return cmd
}

func (c *commands) setPeers(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, peers []string, dryRun bool) error {
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := api.SetPeers(ctx, &nodev1.SetPeersRequest{Peers: peers, DryRun: dryRun})
	if err != nil {
		return fault.FromRPC(err, "cannot give "+output.Called(node.ID)+" its peers", "Run `reeve status` to see how it is.")
	}
	return c.print(output.Peers{NodeID: node.ID, DryRun: dryRun, Peers: append([]string{}, response.GetPeers()...)})
}
