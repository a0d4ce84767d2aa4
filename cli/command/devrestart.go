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
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Replace reeved, and leave the roles of the node running",
		Long: `restart ends the reeved that runs in a directory and starts the present one in the background, which goes on with the roles that run: they do not notice but
for a moment without a host. That is how a node is upgraded. If no reeved runs, one is started, as by ` + "`reeve dev up --detach`" + `.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.directory()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			pid, err := dev.Leave(ctx, dir, dryRun)
			cancel()
			if err != nil {
				return err
			}
			if dryRun {
				c.say(wouldRestart(dir, pid))
				return nil
			}
			if pid != 0 {
				c.say(fmt.Sprintf("reeved (process %d) has ended; its roles run on.", pid))
			}
			return c.up(cmd.Context(), dir, upOptions{detach: true, timeout: timeout})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long reeved may take to end, and the node to be up")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be replaced, and replace nothing")
	return cmd
}

func wouldRestart(dir string, pid int) string {
	if pid == 0 {
		return "No node runs in " + dir + "; one would be started."
	}
	return fmt.Sprintf("reeved (process %d) would be replaced in %s; its roles would run on.", pid, dir)
}
