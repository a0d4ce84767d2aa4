package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

func (c *commands) wait() *cobra.Command {
	var conditions []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait NODE",
		Short: "Wait until a node meets conditions",
		Long: `wait waits until a node meets all conditions of --for at the same time:

  --for role/NAME=STATE     a role is Ready, Degraded, Failed, Blocked, Starting, Backoff, Stopping or Stopped; Started: a process of it runs;
                            Gone: the node no longer reports it
  --for membership=STATE    the node sees itself as Home, Split, ...
  --for volume=STATE        the volume of the node is Open, Locked, Sealed, ...
  --for healthy             the cluster has a fresh heartbeat of the node

A role that is Failed ends the wait with the cause, unless that is what was waited for.`,
		Example: "  reeve wait self --for membership=Home --for role/hostsfile=Ready --timeout 2m",
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(conditions) == 0 {
				return fault.New(fault.Usage, "no condition is given", "Give --for, such as --for role/curator=Ready.")
			}
			// What is wrong in the command line is said before anything is asked.
			for _, text := range conditions {
				if _, err := await.Parse(text, ""); err != nil {
					return err
				}
			}
			return c.waitFor(cmd.Context(), given[0], conditions, timeout)
		},
	}
	cmd.Flags().StringArrayVar(&conditions, "for", nil, "a condition; may be repeated")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "how long to wait at most"+longerStops)
	complete(cmd, "for", c.completeConditions)
	return cmd
}

func (c *commands) waitFor(ctx context.Context, nodeName string, texts []string, timeout time.Duration) error {
	return c.withFound(ctx, nodeName, func(cluster *target.Target, node target.Node) error {
		var conditions []await.Condition
		var fromNode, fromCluster bool
		for _, text := range texts {
			condition, err := await.Parse(text, node.ID)
			if err != nil {
				return err
			}
			if strings.EqualFold(text, "healthy") {
				fromCluster = true
			} else {
				fromNode = true
			}
			conditions = append(conditions, condition)
		}
		var sources []await.Source
		if fromNode {
			sources = append(sources, c.nodeSource(node.ID))
		}
		if fromCluster {
			sources = append(sources, clusterSource(cluster, node.ID))
		}
		began := time.Now()
		state, err := c.await(ctx, node.ID, timeout, sources, conditions...)
		if err != nil {
			return err
		}
		return c.print(output.Waited{NodeID: node.ID, Conditions: texts, Seconds: time.Since(began).Seconds(), State: state})
	})
}
