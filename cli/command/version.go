package command

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

// versionTimeout is how long a node may take to say its version: the version of reeve itself is not to wait for one that is away.
const versionTimeout = 3 * time.Second

func (c *commands) version() *cobra.Command {
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of reeve and of the node",
		Long: `version shows the version of reeve and, if the cluster can be reached, that of the local node, or of the only one. That none can be reached is no
failure.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if client {
				return c.print(c.ownVersion())
			}
			return c.print(c.versions(cmd.Context()))
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "only the version of reeve")
	return cmd
}

func (c *commands) ownVersion() output.Version {
	return output.Version{Version: c.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// versions are those of reeve and of the node.
func (c *commands) versions(ctx context.Context) output.Version {
	document := c.ownVersion()
	document.Node, document.Problem = c.nodeVersion(ctx)
	return document
}

// nodeVersion returns the version of the node, or why it cannot be read; neither if no cluster is named.
func (c *commands) nodeVersion(ctx context.Context) (*output.NodeVersion, string) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	var version *output.NodeVersion
	err := c.withTarget(ctx, func(cluster *target.Target) error {
		status, err := nodeStatus(ctx, cluster, "")
		if err != nil {
			return err
		}
		version = &output.NodeVersion{ID: status.GetNodeId(), Version: status.GetNode().GetVersion()}
		return nil
	})
	var problem *fault.Error
	switch {
	case version != nil || fault.CodeOf(err) == fault.Usage:
		return version, ""
	case errors.As(err, &problem):
		return nil, problem.What
	default:
		return nil, err.Error()
	}
}
