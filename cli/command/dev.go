package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
)

func (c *commands) dev() *cobra.Command {
	return group("dev", "A cluster of one node in a directory, for developing and trying out", c.devUp(), c.devRestart(), c.devDown())
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

// upOptions are the flags of `reeve dev up`.
type upOptions struct {
	detach  bool
	plan    dev.Plan
	timeout time.Duration
}

// stopTimeout is how long a node that `reeve dev up` has started may take to stop: several graces of its roles in a row.
const stopTimeout = 30 * time.Second

func (c *commands) devUp() *cobra.Command {
	var options upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the cluster if there is none, and run its node",
		Long: `up makes a cluster of one node in a directory, if there is none yet, and runs the node: until Ctrl-C, or with --detach in the
background until ` + "`reeve dev down`" + `. Nothing of the machine is changed but a range of user IDs that is reserved, as root.

With --volume fscrypt, as root, what the node keeps is encrypted, in an image below the directory. Its recovery key is made in D/recovery.key, and later
"reeve dev up" and "reeve dev restart" unlock the node with it by themselves: to try out, not to protect anything.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.directory()
			if err != nil {
				return err
			}
			return c.up(cmd.Context(), dir, options)
		},
	}
	cmd.Flags().BoolVar(&options.detach, "detach", false, "return when the node is up, and leave it running")
	cmd.Flags().StringVar(&options.plan.Plugins, "plugins", "", "directory with the built-in plugins (default: plugins beside reeve)")
	cmd.Flags().StringVar(&options.plan.HostsFile, "hosts-file", "", "the file that the role hostsfile manages (default D/hosts)")
	cmd.Flags().StringVar(&options.plan.Volume, "volume", "", "the kind of the node's volume: plain, or fscrypt (default plain, which is NOT ENCRYPTED)")
	cmd.Flags().DurationVar(&options.timeout, "timeout", time.Minute, "how long the node may take to be up")
	complete(cmd, "volume", fixed(dev.Plain, dev.Fscrypt))
	return cmd
}

func (c *commands) up(ctx context.Context, dir string, options upOptions) error {
	if options.plan.Plugins == "" {
		options.plan.Plugins = c.beside("plugins")
	}
	directory, err := dev.Make(dir, options.plan, c.Places)
	if err != nil {
		return err
	}
	conn, pid, err := target.DialLocal(ctx, directory.Path)
	if err == nil {
		_ = conn.Close()
		c.say(fmt.Sprintf("A node runs in %s already (process %d).", dir, pid))
		return c.awaitRunning(ctx, directory, dir, options.timeout)
	}
	if !errors.Is(err, target.ErrNotRunning) {
		return fault.Wrap(fault.Failed, err, "whether a node runs in "+dir+" cannot be seen", "")
	}

	// The node is told to end when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	daemon, err := directory.Start(c.beside("reeved"), options.detach)
	if err != nil {
		return err
	}
	defer daemon.Release()
	c.say(fmt.Sprintf("Starting a node in %s (process %d; its log is %s).", dir, daemon.PID(), directory.LogFile()))
	follower, err := dev.Follow(directory, daemon, c.say, c.say)
	if err != nil {
		return errors.Join(err, stopDaemon(daemon))
	}
	defer follower.Close()
	if err := follower.UntilUp(ctx, options.timeout); err != nil {
		if ctx.Err() != nil && !options.detach {
			return c.stop(follower, daemon, nil)
		}
		if ctx.Err() != nil {
			err = fault.New(fault.Failed, "interrupted before the node was up", "")
		}
		return c.stop(follower, daemon, err)
	}
	if err := c.print(output.NewStatus(follower.Status())); err != nil {
		return c.stop(follower, daemon, err)
	}
	c.say(c.nextCommands(dir, follower.Status().GetNodeId(), options.detach))
	if options.detach {
		return nil
	}
	if err := follower.UntilEnd(ctx); err != nil {
		return c.stop(follower, daemon, err)
	}
	return c.stop(follower, daemon, nil)
}

// awaitRunning waits until a node that others have started is up.
func (c *commands) awaitRunning(ctx context.Context, directory *dev.Directory, dir string, timeout time.Duration) error {
	follower, err := dev.Follow(directory, nil, func(string) {}, c.say)
	if err != nil {
		return err
	}
	defer follower.Close()
	if err := follower.UntilUp(ctx, timeout); err != nil {
		return err
	}
	if err := c.print(output.NewStatus(follower.Status())); err != nil {
		return err
	}
	c.say(c.nextCommands(dir, follower.Status().GetNodeId(), true))
	return nil
}

// stop stops the node, unless it has ended by itself, and returns cause, with what went wrong in stopping.
func (c *commands) stop(follower *dev.Follower, daemon *dev.Daemon, cause error) error {
	if daemon.Ended() {
		return cause
	}
	c.say("Stopping the node and all of its roles.")
	if err := follower.Stop(stopTimeout); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

func stopDaemon(daemon *dev.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return daemon.Stop(ctx)
}

func (c *commands) nextCommands(dir, nodeID string, detached bool) string {
	call := c.advice(dir)
	text := fmt.Sprintf(`
The node is up. Try, in another terminal:
  %[1]s status
  %[1]s node role remove %[2]s hostsfile
  %[1]s plugin add %[3]s --approve
  %[1]s node role add %[2]s lighthouse
`, call, nodeID, c.beside("examples/lighthouse"))
	if detached {
		return text + fmt.Sprintf("  %s dev down", call)
	}
	return text + "Ctrl-C stops the node and all of its roles."
}

func (c *commands) devDown() *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the node and all of its roles",
		Long: `down stops the node that runs in a directory and all of its roles. If none runs it stops the roles that a dead one may have left. The cluster
stays as it is on disk: ` + "`reeve dev up`" + ` starts it again.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.directory()
			if err != nil {
				return err
			}
			if dryRun {
				down, err := dev.WouldDown(cmd.Context(), dir)
				if err != nil {
					return err
				}
				return c.print(down)
			}
			down, err := dev.Down(cmd.Context(), dir, c.beside("reeved"), timeout)
			if err != nil {
				return err
			}
			return c.print(down)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", stopTimeout, "how long the node may take to stop")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be stopped, and stop nothing")
	return cmd
}
