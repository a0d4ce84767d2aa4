package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) logs() *cobra.Command {
	var tail uint32
	cmd := &cobra.Command{
		Use:   "logs NODE ROLE",
		Short: "Show what the instances of a role wrote to their log",
		Long: `logs shows what the instances of a role on a node wrote to their log. With -o json every line is a document of its own.

NODE is a node's ID, an unambiguous beginning of it, or "self" for the node of the dev directory.`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.showLog(cmd.Context(), cluster, given[0], given[1], tail)
			})
		},
	}
	cmd.Flags().Uint32Var(&tail, "tail", 0, "only the last lines, that many (default: all that is kept)")
	return cmd
}

func (c *commands) showLog(ctx context.Context, cluster *target.Target, nodeName, role string, tail uint32) error {
	node, err := cluster.FindNode(ctx, nodeName)
	if err != nil {
		return err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	what := fmt.Sprintf("the log of role %s on node %s cannot be had", role, node.ID)
	stream, err := api.ReadLog(ctx, &nodev1.ReadLogRequest{Role: role, Tail: tail})
	if err != nil {
		return fault.FromRPC(err, what, "")
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.FromRPC(err, what, "Run `reeve status` to see the roles of the node.")
		}
		if err := c.writeLog(response.GetData()); err != nil {
			return err
		}
	}
}

// writeLog writes whole lines of a log: as they are for programs, without control sequences on a terminal.
func (c *commands) writeLog(data []byte) error {
	if c.format == output.Table && !c.StdoutIsTerminal {
		_, err := c.Stdout.Write(data)
		return err
	}
	for line := range bytes.Lines(data) {
		text := string(bytes.TrimSuffix(line, []byte("\n")))
		if c.format == output.Table {
			if _, err := fmt.Fprintln(c.Stdout, output.Clean(text)); err != nil {
				return err
			}
			continue
		}
		encoder := json.NewEncoder(c.Stdout)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(output.LogLine{Line: text}); err != nil {
			return err
		}
	}
	return nil
}
