package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"maps"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// devNumbers is the flag by which a command is for one node of a dev directory.
type devNumbers struct{ number int }

func (n *devNumbers) flag(c *commands, cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&n.number, "node", 0, what+" only the node of this `NUMBER` (default all)")
	complete(cmd, "node", func(*cobra.Command, []string, string) []cobra.Completion {
		dir, err := c.directory()
		if fault.CodeOf(err) != fault.OK {
			return nil
		}
		var numbers []cobra.Completion
		for _, number := range slices.Sorted(maps.Keys(dev.Nodes(dir))) {
			numbers = append(numbers, strconv.Itoa(number))
		}
		return numbers
	})
}

// of returns the dev directory, the numbers of the nodes that are meant, in their order, and the nodes' directories.
func (n *devNumbers) of(c *commands) (dir string, numbers []int, nodes map[int]string, err error) {
	if dir, err = c.directory(); err != nil {
		return "", nil, nil, err
	}
	nodes = dev.Nodes(dir)
	if n.number == 0 {
		return dir, slices.Sorted(maps.Keys(nodes)), nodes, nil
	}
	if _, ok := nodes[n.number]; !ok {
		return "", nil, nil, fault.New(fault.NotFound, fmt.Sprintf("there is no node %d in %s", n.number, dir), "Run `reeve dev status` to see the nodes.")
	}
	return dir, []int{n.number}, nodes, nil
}

func (c *commands) devStatus() *cobra.Command {
	var only devNumbers
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the directory",
		Long: `status shows the nodes of a dev directory, as each sees itself, and those that do not run. "reeve status --dir D/nodes/2" shows the second one alone, "reeve node
list" what the cluster sees.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, numbers, nodes, err := only.of(c)
			if err != nil {
				return err
			}
			first, err := dev.Find(dir)
			if fault.CodeOf(err) == fault.Refused {
				return err
			}
			if err != nil {
				return fault.Wrap(fault.NotFound, err, "there is no dev directory "+dir, "Run `reeve dev up --dir "+dir+"` to make a cluster there.")
			}
			document := output.DevStatus{Directory: first.Path, Nodes: []output.DevNode{}}
			for _, number := range numbers {
				node, err := devNode(cmd.Context(), nodes[number])
				if err != nil {
					return err
				}
				document.Nodes = append(document.Nodes, node)
			}
			return c.print(document)
		},
	}
	only.flag(c, cmd, "show")
	return cmd
}

// newDevNode makes the document of a node. status is nil if it does not say anything.
func newDevNode(directory *dev.Directory, pid int, status *nodev1.Status) output.DevNode {
	node := output.NewDevNode(directory.Number, directory.Path, pid, status)
	node.Namespace, node.Address = directory.Namespace(), directory.Address()
	return node
}

// devNode is a node of a dev directory as it says that it is, if it runs.
func devNode(ctx context.Context, path string) (output.DevNode, error) {
	found, err := dev.Find(path)
	if err != nil {
		return output.DevNode{}, fault.Wrap(fault.Failed, err, "cannot read the parameters of the node in "+path, "")
	}
	node := newDevNode(found, 0, nil)
	conn, pid, err := target.DialLocal(ctx, path)
	if errors.Is(err, target.ErrNotRunning) {
		node.Left = append(node.Left, target.LeftIn(path)...)
		return node, nil
	}
	if err != nil {
		return node, fault.Wrap(fault.Refused, err, "cannot tell whether a node runs in "+path, "Run reeve as the user who made the directory.")
	}
	_ = conn.Close()
	cluster, err := target.Open(ctx, target.Options{Dir: path})
	if err != nil {
		return newDevNode(found, pid, nil), ctx.Err()
	}
	defer func() { _ = cluster.Close() }()
	status, err := cluster.LocalStatus(ctx)
	if err != nil {
		status = nil // One that hangs is shown all the same.
	}
	return newDevNode(found, pid, status), ctx.Err()
}
