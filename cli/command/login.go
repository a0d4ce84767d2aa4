package command

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

// The bounds of a session: a shorter one would be over before it is used, and the cluster gives no longer one.
const (
	shortestSession = time.Minute
	longestSession  = 7 * 24 * time.Hour
)

func (c *commands) login() *cobra.Command {
	var plan target.LoginPlan
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Prove a key to a cluster, and keep a session and the way to the cluster",
		Long: `login proves your key to a cluster: the owner's or the one that an owner added you with (reeve operator add). The cluster gives a certificate for a fresh
key that reeve makes; both, and how the cluster is reached, are kept in a context in your configuration directory, which becomes the current one. Your own
key is only read.

A session lasts as long as --session says; its certificates last an hour and are renewed by every command that finds one past half of its life. When the
session is over, or was not used for so long that its certificate ended, your key is needed again.

The way to the cluster is given as for every command: --dir, --socket, or --address and --ca; without them, --name is the context to log in to again.
With --dir the owner's key of the dev directory is the default.`,
		Example: `  reeve login --dir ./var/dev
  reeve login --name lab --address 192.0.2.1:7443 --ca ca.pem --key alice.key
  reeve login --name lab --key alice.key`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if given := cmd.Flags().Changed("session"); given && (plan.Session < shortestSession || plan.Session > longestSession) {
				return fault.New(fault.Usage, fmt.Sprintf("a session cannot last %s", plan.Session),
					fmt.Sprintf("Give --session between %s and %s.", shortestSession, longestSession))
			}
			context, session, err := target.Login(cmd.Context(), c.options, plan)
			if err != nil {
				return err
			}
			document := output.Login{Context: context.Name, Cluster: context.ClusterID(), Session: *output.NewSession(session, c.Now())}
			if err := c.print(document); err != nil {
				return err
			}
			if _, err := os.Stat(target.DefaultDirectory); err == nil {
				c.say(fmt.Sprintf("Here, where %s is, commands go there. Give --context %s for this context.", target.DefaultDirectory, context.Name))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&plan.Name, "name", "", "the `CONTEXT` that keeps it (default: the name of the dev directory, or \""+target.DefaultContext+"\")")
	cmd.Flags().StringVar(&plan.KeyFile, "key", "", "`FILE` with your private key (default: the one with which the context was last logged in)")
	cmd.Flags().DurationVar(&plan.Session, "session", 12*time.Hour, "how long the session is to last, at most a week")
	complete(cmd, "name", c.contextNames)
	return cmd
}
