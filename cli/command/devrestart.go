package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
)

func (c *commands) devRestart() *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	var only devNumbers
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Replace reeved, and leave the roles of the nodes running",
		Long: `restart ends the reeved that runs in a directory and starts the present one in the background, which goes on with the roles that run: they do not notice but
for a moment without a host. That is how a node is upgraded. Of several nodes one is replaced after the other, each when the one before is up. If no reeved runs, one
is started, as by ` + "`reeve dev up --detach`" + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, numbers, nodes, err := only.of(c)
			if err != nil {
				return err
			}
			return c.restartNodes(cmd.Context(), dir, numbers, nodes, timeout, dryRun)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long a reeved may take to end, and its node to be up")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be replaced, and replace nothing")
	only.flag(c, cmd, "replace")
	return cmd
}

// restartNodes replaces the reeved of one node after the other.
func (c *commands) restartNodes(ctx context.Context, dir string, numbers []int, nodes map[int]string, timeout time.Duration, dryRun bool) error {
	var f *fleet
	for _, number := range numbers {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		pid, err := dev.Leave(bounded, nodes[number], dryRun)
		cancel()
		if err != nil {
			return err
		}
		if dryRun {
			c.say(wouldRestart(nodes[number], pid))
			continue
		}
		if pid != 0 {
			c.say(fmt.Sprintf("reeved (process %d) has ended; its roles run on.", pid))
		}
		if len(nodes) == 1 {
			return c.up(ctx, dir, upOptions{detach: true, timeout: timeout})
		}
		if f == nil {
			if f, err = c.openFleet(dir, upOptions{detach: true, timeout: timeout}); err != nil {
				return err
			}
			defer f.close()
		}
		// Those that did not run are waited for together: one alone may have no quorum.
		if err := f.begin(ctx, number, pid != 0); err != nil {
			return err
		}
	}
	if f == nil {
		return nil
	}
	if err := f.untilUp(ctx, f.nodes); err != nil {
		return err
	}
	return c.print(f.document())
}

func wouldRestart(dir string, pid int) string {
	if pid == 0 {
		return "No node runs in " + dir + "; one would be started."
	}
	return fmt.Sprintf("reeved (process %d) would be replaced in %s; its roles would run on.", pid, dir)
}
