package command

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

func (c *commands) dev() *cobra.Command {
	return group("dev", "A cluster in a directory, of one node or of several, for developing and trying out", c.devUp(), c.devStatus(), c.devRestart(), c.devDown())
}

// directory is the dev directory of the command line, which need not exist yet.
func (c *commands) directory() (string, error) {
	for flag, value := range map[string]string{"--address": c.options.Address, "--socket": c.options.Socket, "--context": c.options.Context} {
		if value != "" {
			return "", fault.New(fault.Usage, flag+" names a cluster that is not in a dev directory", "Give --dir.")
		}
	}
	if c.options.Dir == "" {
		return target.DefaultDirectory, nil
	}
	return c.options.Dir, nil
}

func stopDaemon(daemon *dev.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), dev.StopTime(nil))
	defer cancel()
	return daemon.Stop(ctx)
}

func (c *commands) devDown() *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	var only devNumbers
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the nodes and all of their roles",
		Long: `down stops the nodes that run in a directory and all of their roles. If none runs it stops the roles that a dead one may have left. The cluster
stays as it is on disk: ` + "`reeve dev up`" + ` starts it again. The network namespaces of nodes that were made with --netns are taken away, and come again with them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, numbers, nodes, err := only.of(c)
			if err != nil {
				return err
			}
			downs, failures := make([]output.Down, len(numbers)), make([]error, len(numbers))
			var stopping sync.WaitGroup
			for i, number := range numbers {
				stopping.Go(func() {
					if dryRun {
						downs[i], failures[i] = dev.WouldDown(cmd.Context(), nodes[number])
					} else {
						downs[i], failures[i] = dev.Down(cmd.Context(), nodes[number], c.beside("reeved"), timeout)
					}
				})
			}
			stopping.Wait()
			if err := errors.Join(failures...); err != nil {
				return err
			}
			if err := c.removeNetwork(numbers, nodes, dryRun); err != nil {
				return err
			}
			downs[0].Nodes = append([]output.Down{}, downs[1:]...)
			return c.print(downs[0])
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long a node may take to stop (default 30s, and the longer where a role takes longer than 10s by its manifest)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be stopped, and stop nothing")
	only.flag(c, cmd, "stop")
	return cmd
}

// removeNetwork takes away the network namespaces of nodes that have been stopped.
func (c *commands) removeNetwork(numbers []int, nodes map[int]string, dryRun bool) error {
	for _, number := range numbers {
		directory, err := dev.Find(nodes[number])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fault.Wrap(fault.Failed, err, "cannot read the parameters of the node in "+nodes[number], "")
		}
		if dryRun {
			if namespace := directory.Namespace(); namespace != "" {
				c.say("The network namespace " + namespace + " would be taken away.")
			}
			continue
		}
		if err := directory.RemoveNetwork(); err != nil {
			return err
		}
	}
	return nil
}
