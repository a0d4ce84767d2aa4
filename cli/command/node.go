package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/rolewait"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (c *commands) node() *cobra.Command {
	return group("node", "Nodes and their roles", c.nodeList(),
		group("role", "The roles of a node", c.roleAdd(), c.roleRemove()))
}

func (c *commands) nodeList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the nodes of the cluster",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				management, err := cluster.Management(cmd.Context())
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), target.CallTimeout)
				defer cancel()
				response, err := management.ListNodes(ctx, &clusterv1.ListNodesRequest{})
				if err != nil {
					return fault.FromRPC(err, "the nodes cannot be listed", "")
				}
				nodes := output.Nodes{Nodes: []output.Node{}}
				for _, node := range response.GetNodes() {
					nodes.Nodes = append(nodes.Nodes, output.NewNode(node))
				}
				return c.print(nodes)
			})
		},
	}
}

// waiting is how a command that changes roles waits.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", true, "wait until it is so")
	cmd.Flags().DurationVar(&w.timeout, "timeout", time.Minute, "how long to wait at most")
}

func (c *commands) roleAdd() *cobra.Command {
	var w waiting
	var file string
	cmd := &cobra.Command{
		Use:   "add NODE ROLE",
		Short: "Give a role to a node, or another configuration to one that it has",
		Long: `add gives a role to a node and waits until it is Ready there with the configuration. A role that the node has already gets the
configuration in place of its former one; without --config that is none.

NODE is a node's ID, an unambiguous beginning of it, or "self" for the node of the dev directory.`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			configuration, err := c.readConfiguration(file)
			if err != nil {
				return err
			}
			return c.changeRole(cmd.Context(), given[0], given[1], w,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, nodeID string) (uint64, error) {
					response, err := management.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: nodeID, Role: given[1], Configuration: configuration})
					if err != nil {
						next := "Run `reeve plugin list` to see the roles, `reeve plugin add` to add one."
						if status.Code(err) == codes.InvalidArgument {
							next = "Correct the configuration and run the command again."
						}
						return 0, fault.FromRPC(err, fmt.Sprintf("role %s cannot be given to node %s", given[1], nodeID), next)
					}
					for _, role := range response.GetNode().GetRoles() {
						if role.GetRole() == given[1] {
							return role.GetGeneration(), nil
						}
					}
					return 0, fault.New(fault.Failed, "the cluster has taken role "+given[1]+" and not kept it", "Another operator may have removed it: run `reeve node list`.")
				})
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "file with the configuration of the role, JSON or YAML; - is the standard input")
	w.flags(cmd)
	return cmd
}

func (c *commands) roleRemove() *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use:   "remove NODE ROLE",
		Short: "Take a role from a node",
		Long: `remove takes a role from a node and waits until it has ended there.

NODE is a node's ID, an unambiguous beginning of it, or "self" for the node of the dev directory.`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.changeRole(cmd.Context(), given[0], given[1], w,
				func(ctx context.Context, management clusterv1.ManagementServiceClient, nodeID string) (uint64, error) {
					_, err := management.RemoveRole(ctx, &clusterv1.RemoveRoleRequest{NodeId: nodeID, Role: given[1]})
					return 0, fault.FromRPC(err, fmt.Sprintf("role %s cannot be taken from node %s", given[1], nodeID),
						"Run `reeve node list` to see the roles of the nodes.")
				})
		},
	}
	w.flags(cmd)
	return cmd
}

// changeRole makes a change of a node's role, waits for it and prints what became of it. change returns the generation of the assignment, 0 if there is
// none any more.
func (c *commands) changeRole(ctx context.Context, nodeName, role string, w waiting,
	change func(context.Context, clusterv1.ManagementServiceClient, string) (uint64, error)) error {
	return c.withTarget(ctx, func(cluster *target.Target) error {
		node, err := cluster.FindNode(ctx, nodeName)
		if err != nil {
			return err
		}
		management, err := cluster.Management(ctx)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
		defer cancel()
		generation, err := change(bounded, management, node.ID)
		if err != nil {
			return err
		}
		document := output.RoleChange{NodeID: node.ID, Role: role, Generation: generation, Waited: w.wait}
		if w.wait {
			document.Instance, err = c.await(ctx, cluster, rolewait.Change{NodeID: node.ID, Role: role, Generation: generation}, w.timeout)
			if err != nil {
				return err
			}
		}
		return c.print(document)
	})
}

func (c *commands) await(ctx context.Context, cluster *target.Target, change rolewait.Change, timeout time.Duration) (*output.Role, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	wanted := "Waiting until role " + change.Role + " is Ready"
	if change.Generation == 0 {
		wanted = "Waiting until role " + change.Role + " is gone"
	}
	lines := rolewait.NewLines(c.Stderr, c.Width, wanted, c.Now)
	defer lines.Close()
	instance, err := rolewait.For(ctx, cluster, change, lines)
	if err != nil || instance == nil {
		return nil, err
	}
	role := output.NewRole(instance)
	return &role, nil
}

// maxConfiguration is more than the cluster API takes.
const maxConfiguration = 1 << 20

// readConfiguration returns the configuration in a file as a JSON document; empty if no file is named.
func (c *commands) readConfiguration(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	from := c.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return "", fault.Wrap(fault.NotFound, err, "the configuration cannot be read", "Give a file, or - for the standard input, with --config.")
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	text, err := io.ReadAll(io.LimitReader(from, maxConfiguration+1))
	if err != nil {
		return "", fault.Wrap(fault.Failed, err, fmt.Sprintf("the configuration in %s cannot be read", file), "Give a file, or - for the standard input, with --config.")
	}
	if len(text) > maxConfiguration {
		return "", fault.New(fault.Usage, fmt.Sprintf("the configuration in %s is longer than 1 MiB", file), "Give the right file with --config.")
	}
	if json.Valid(text) {
		return string(text), nil
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, fmt.Sprintf("the configuration in %s is neither JSON nor YAML", file), "Correct it, and give it with --config again.")
	}
	return string(document), nil
}
