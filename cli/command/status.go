package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) status() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show a node, its volume, its membership and its roles",
		Long: `status shows a node as it sees itself. Of a volume it always says whether it is encrypted, and while it is locked what it waits for. Of a role that failed it
shows the cause and what the role last wrote.

With --watch it shows the node again after every change, until it is interrupted, also while the node is locked or restarts; with -o json one document a
line.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if watch {
				return c.watchStatus(cmd.Context(), optional(given))
			}
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				status, err := nodeStatus(cmd.Context(), cluster, optional(given))
				if err != nil {
					return err
				}
				return c.print(output.NewStatus(status))
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the node again after every change")
	return cmd
}

// watchStatus shows a node again and again. It finds the node again when contact is lost, as when its API is served anew after its volume was opened.
func (c *commands) watchStatus(ctx context.Context, name string) error {
	shown := false
	err := c.follow(ctx, name, c.notices(follower{
		once: func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) error {
			var printed error
			watch, stop := context.WithCancel(ctx)
			defer stop()
			err := watchStatus(watch, api, node, func(status *nodev1.Status) {
				if printed != nil {
					return
				}
				if shown && c.format == output.Table {
					_, printed = fmt.Fprintln(c.Stdout)
				}
				shown = true
				if printed == nil {
					printed = output.PrintNext(c.Stdout, c.format, output.NewStatus(status), c.Now())
				}
				if printed != nil {
					stop()
				}
			})
			if printed != nil {
				return printed
			}
			return err
		},
	}))
	return untilInterrupted(ctx, err)
}

func nodeStatus(ctx context.Context, cluster *target.Target, name string) (*nodev1.Status, error) {
	if name == "" && cluster.HasLocal() {
		// A node that has no key yet has a status all the same.
		return cluster.LocalStatus(ctx)
	}
	node, err := cluster.FindNode(ctx, name)
	if err != nil {
		return nil, err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return nil, err
	}
	return askStatus(ctx, api, node)
}

// askStatus returns what a node says of itself.
func askStatus(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) (*nodev1.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	var response *nodev1.GetStatusResponse
	ask := func() (err error) {
		response, err = api.GetStatus(ctx, &nodev1.GetStatusRequest{})
		return err
	}
	var err error
	if node.Local {
		err = target.Anew(ctx, ask)
	} else {
		err = ask()
	}
	if err != nil {
		return nil, fault.FromRPC(err, "cannot read the status of node "+node.ID, "")
	}
	return response.GetStatus(), nil
}
