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
			pid, err := dev.Leave(ctx, dir)
			cancel()
			if err != nil {
				return err
			}
			if pid != 0 {
				c.say(fmt.Sprintf("reeved (process %d) has ended; its roles run on.", pid))
			}
			return c.up(cmd.Context(), dir, upOptions{detach: true, timeout: timeout})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long reeved may take to end, and the node to be up")
	return cmd
}
