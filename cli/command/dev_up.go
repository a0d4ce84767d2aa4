package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
)

// upOptions are the flags of `reeve dev up`.
type upOptions struct {
	detach, again bool
	// nodes is how many the cluster gets at least; 0: as many as it has, and one if there is none.
	nodes   int
	plan    dev.Plan
	timeout time.Duration
}

func (c *commands) devUp() *cobra.Command {
	var options upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the cluster if there is none, and run its nodes",
		Long: `up makes a cluster in a directory, if there is none yet, and runs its nodes: until Ctrl-C, or with --detach in the
background until ` + "`reeve dev down`" + `. Nothing of the machine is changed but a range of user IDs for each node that is reserved, as root, and with --netns its network.

With --nodes 3 the cluster has three nodes, each a reeved of its own, at the loopback addresses 127.0.0.1, 127.0.0.2 and 127.0.0.3: the second one and later ones
lie in D/nodes, register with a ticket that approves them, and get the roles consensus, curator and hostsfile; from the fourth one on hostsfile only. A cluster that
is there grows to that many nodes; it does not become smaller.

With --netns, as root, every node has a network namespace and an address of its own, as if it were another machine: the namespaces are called reeve-HASH-1, reeve-HASH-2 and
so on (` + "`ip netns`" + `), and a bridge rvHASH connects them with each other and with this machine. "reeve dev status" shows them; "reeve dev down" takes them away, and "reeve dev up"
makes them again with the same addresses. ` + "`ip netns exec NAMESPACE COMMAND`" + ` runs a command as on that node.

With --volume fscrypt, as root, what the nodes keep is encrypted, in an image below the directory of each. Its recovery key is made in D/recovery.key, and later
"reeve dev up" and "reeve dev restart" unlock the node with it by themselves: to try out, not to protect anything.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := c.directory()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("nodes") && (options.nodes < 1 || options.nodes > dev.MaxNodes) {
				return fault.New(fault.Usage, fmt.Sprintf("a dev directory cannot have %d nodes", options.nodes), fmt.Sprintf("Give --nodes from 1 to %d.", dev.MaxNodes))
			}
			options.plan.Again = options.again
			return c.up(cmd.Context(), dir, options)
		},
	}
	cmd.Flags().BoolVar(&options.detach, "detach", false, "return when the nodes are up, and leave them running")
	cmd.Flags().BoolVar(&options.again, "again", false, "give up a node of which the directory has only the parameters, or whose disk is not mounted, and make another one")
	cmd.Flags().IntVar(&options.nodes, "nodes", 0, "how many nodes the cluster gets, 1 to 9 (default as many as it has, or one)")
	cmd.Flags().StringVar(&options.plan.Plugins, "plugins", "", "directory with the built-in plugins (default: plugins beside reeve)")
	cmd.Flags().StringVar(&options.plan.HostsFile, "hosts-file", "", "the file that the role hostsfile of the first node manages (default D/hosts)")
	cmd.Flags().StringVar(&options.plan.Volume, "volume", "", "the kind of the nodes' volumes: plain, or fscrypt (default plain, which is NOT ENCRYPTED)")
	cmd.Flags().DurationVar(&options.timeout, "timeout", time.Minute, "how long a node may take to be up; of several nodes each so long")
	cmd.Flags().BoolVar(&options.plan.Namespaces, "netns", false, "give every node a network namespace with an address of its own, as root (default loopback addresses; a cluster keeps what it has)")
	complete(cmd, "volume", fixed(dev.Plain, dev.Fscrypt))
	complete(cmd, "nodes", fixed("1", "3", "5"))
	return cmd
}

func (c *commands) up(ctx context.Context, dir string, options upOptions) error {
	f, err := c.openFleet(dir, options)
	if err != nil {
		return err
	}
	// A node is told to end when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer f.close()
	err = f.up(ctx)
	switch {
	case err != nil && f.interrupted(ctx):
		return f.stop(nil)
	case err != nil && f.goesOn():
		f.say(output.CleanLines(err.Error()))
		f.say("The other nodes go on. Ctrl-C stops them, and `" + f.c.advice(f.dir) + " dev up`, in another terminal, starts again what has ended.")
		return f.stop(errors.Join(err, f.lower(), f.untilEnd(ctx, f.running())))
	case err != nil:
		return f.fail(ctx, err)
	}
	if err := c.print(f.document()); err != nil {
		return f.stop(err)
	}
	if len(f.nodes) == 2 {
		c.say(twoMembers)
	}
	c.say(f.next())
	if options.detach || !f.started() {
		return nil
	}
	return f.stop(f.untilEnd(ctx, f.nodes))
}

// goesOn says whether a command in the foreground goes on with those of several nodes that run: one that does not come up is no reason to take the store from the others.
func (f *fleet) goesOn() bool { return !f.options.detach && len(f.nodes) > 1 && len(f.running()) > 0 }

// running are the nodes that this command has started and that have not ended by themselves.
func (f *fleet) running() (running []*fleetNode) {
	for _, node := range f.nodes {
		if node.daemon != nil && !node.daemon.Ended() {
			running = append(running, node)
		}
	}
	return running
}

// fail stops what was started where a cluster does not come up. Of several nodes in the background those that run are left.
func (f *fleet) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = fault.New(fault.Failed, "interrupted before the nodes were up", "")
		if len(f.nodes) == 1 {
			err = fault.New(fault.Failed, "interrupted before the node was up", "")
		}
	}
	if len(f.nodes) > 1 && f.options.detach && f.started() {
		f.say("The nodes that were started run on: `" + f.c.advice(f.dir) + " dev status` shows them, `" + f.c.advice(f.dir) + " dev down` stops them.")
		return err
	}
	err = errors.Join(err, f.lower())
	if len(f.nodes) == 0 {
		err = errors.Join(err, f.first.Undo())
	}
	return f.stop(err)
}

// document is what is printed of a cluster that is up.
func (f *fleet) document() output.Document {
	if len(f.nodes) == 1 {
		return output.NewStatus(f.nodes[0].follower.Status())
	}
	document := output.DevStatus{Directory: f.first.Path, Nodes: []output.DevNode{}}
	for _, node := range f.nodes {
		document.Nodes = append(document.Nodes, newDevNode(node.directory, node.pid, node.follower.Status()))
	}
	return document
}

// next says what to do with a cluster that is up.
func (f *fleet) next() string {
	up, ends := "The nodes are up.", "Ctrl-C stops the nodes and all of their roles."
	commands := []string{"node list", "dev status", "dev down --node 2", "dev up --detach"}
	if len(f.nodes) == 1 {
		id := f.nodes[0].follower.Status().GetNodeId()
		up, ends = "The node is up.", "Ctrl-C stops the node and all of its roles."
		commands = []string{"status", "node role remove " + id + " hostsfile", "plugin add " + f.c.beside("examples/lighthouse") + " --approve", "node role add " + id + " lighthouse"}
	}
	call := "\n  " + f.c.advice(f.dir) + " "
	text := "\n" + up + " Try, in another terminal:" + call + strings.Join(commands, call)
	if f.options.detach || !f.started() {
		return text + call + "dev down"
	}
	return text + "\n" + ends
}

// errEnded says that every node of several has ended by itself.
var errEnded = errors.New("every node has ended")
