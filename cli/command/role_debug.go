package command

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) roleDebug() *cobra.Command {
	var w waiting
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "debug NODE ROLE SOCKET",
		Short: "Have a process that you started by hand be a node's instance of a role",
		Long: `debug has a process that you started by hand, under a debugger say, take the place of a node's own instance of a role, until it ends. A plugin that is started with -debug
prints the socket on which it waits for that. It must run on the node's machine and as the node's user; it is in no sandbox, and has what the catalog grants to the role. The
node does not ask it whether it is well, so that it can stand still at a breakpoint, and its end is no failure: the node starts its own instance again.

It is for development: the node's parameters must say debug_roles, as those of ` + "`reeve dev up`" + ` do, and the cluster's policy must ask neither for isolation nor for
conformance. The role's status says "debug" meanwhile, and the node's events have who asked for it.`,
		Example: `  ./bin/lighthouse -debug
  dlv exec ./bin/lighthouse -- -debug
  reeve node role debug self lighthouse /tmp/reeve-debug-1234567890/plugin.sock`,
		RunE: c.onNodeAPI(func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, given []string) error {
			return c.debug(ctx, api, node, given[1], given[2], dryRun, w)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, dryRunUsage)
	w.flags(cmd, untilStarted, untilReady, notAtAll)
	return cmd
}

func (c *commands) debug(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, role, socket string, dryRun bool, w waiting) error {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return err
	}
	document := output.RoleChange{NodeID: node.ID, Role: role, Action: "debug", DryRun: dryRun}
	err = c.replaceInstance(ctx, api, node, &document, w, func(ctx context.Context) (string, error) {
		response, err := api.DebugRole(ctx, &nodev1.DebugRoleRequest{Role: role, Socket: socket, DryRun: dryRun})
		return response.GetInstanceId(), fault.FromRPC(err, fmt.Sprintf("cannot debug role %s of node %s", role, node.ID), "Run `reeve node role debug --help` to see what that takes.")
	})
	if err != nil {
		return err
	}
	if document.Waited && !document.Instance.GetDebug() {
		return fault.New(fault.Failed, fmt.Sprintf("node %s went on with an instance of its own of role %s", node.ID, role),
			"Run `reeve events "+node.ID+"` to see why it did not take the process; what the process itself wrote may say more.")
	}
	return c.print(document)
}
