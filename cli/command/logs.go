package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/logtail"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) logs() *cobra.Command {
	var tail uint32
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs NODE ROLE",
		Short: "Show what the instances of a role wrote to their log",
		Long: `logs shows what the instances of a role on a node wrote to their log. With --follow it goes on with what they write, over restarts of the role
and of reeved, until it is interrupted. With -o json or yaml every line is a document of its own.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if follow {
				return c.followLog(cmd.Context(), given[0], given[1], tail)
			}
			return c.withNode(cmd.Context(), given[0], func(api nodev1.NodeServiceClient, node target.Node) error {
				return receiveLog(cmd.Context(), api, node, &nodev1.ReadLogRequest{Role: given[1], Tail: tail}, c.writeLog)
			})
		},
	}
	cmd.Flags().Uint32Var(&tail, "tail", 0, "only the last lines, that many (default: all that is kept)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written, until interrupted")
	return cmd
}

// receiveLog calls see with what a node sends of a log, whole lines at a time.
func receiveLog(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, request *nodev1.ReadLogRequest, see func([]byte) error) error {
	// Ends the stream on every way out.
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	what := fmt.Sprintf("cannot read the log of role %s on node %s", request.GetRole(), node.ID)
	next := "Run `reeve status " + node.ID + "` to see the roles of the node."
	stream, err := api.ReadLog(stop, request)
	if err != nil {
		return fault.FromRPC(err, what, next)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return streamFault(ctx, err, request.GetFollow(), what, next)
		}
		if err := see(response.GetData()); err != nil {
			return err
		}
	}
}

// followLog shows a log and what is written to it, over restarts of reeved.
func (c *commands) followLog(ctx context.Context, name, role string, tail uint32) error {
	place := logtail.NewPlace()
	first := true
	show := func(data []byte) error {
		for line := range bytes.Lines(data) {
			place.See(line)
		}
		return c.writeLog(data)
	}
	err := c.follow(ctx, name, c.notices(follower{
		once: func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) error {
			if !first {
				return c.resumeLog(ctx, api, node, role, place, show)
			}
			first = false
			return receiveLog(ctx, api, node, &nodev1.ReadLogRequest{Role: role, Tail: tail, Follow: true}, show)
		},
	}))
	return untilInterrupted(ctx, err)
}

// errBegunAnew says that a log was begun anew while it was looked at.
var errBegunAnew = errors.New("the log was begun anew meanwhile")

// resumeLog goes on with a log where it was left. What is kept of it is read to find the place, which only its end tells, and then read again to go on
// from there with what is written.
func (c *commands) resumeLog(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, role string, place *logtail.Place,
	show func([]byte) error) error {
	for {
		kept := place.NewKept()
		if err := receiveLog(ctx, api, node, &nodev1.ReadLogRequest{Role: role}, func(data []byte) error {
			for line := range bytes.Lines(data) {
				kept.Add(line)
			}
			return nil
		}); err != nil {
			return err
		}
		seen, found := kept.Seen()
		if !found {
			c.say("reeve: the log was begun anew while the node was away; lines may be missing.")
		}
		index := 0
		err := receiveLog(ctx, api, node, &nodev1.ReadLogRequest{Role: role, Follow: true}, func(data []byte) error {
			for line := range bytes.Lines(data) {
				if index < seen {
					if !kept.Same(index, line) {
						return errBegunAnew
					}
					index++
					continue
				}
				if err := show(line); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, errBegunAnew) {
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
		document := output.LogLine{Line: string(bytes.TrimSuffix(line, []byte("\n")))}
		if err := output.PrintNext(c.Stdout, c.format, document, c.Now()); err != nil {
			return err
		}
	}
	return nil
}
