package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/logtail"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) logs() *cobra.Command {
	var tail uint32
	var follow, previous bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs NODE ROLE",
		Short: "Show what the instances of a role wrote to their log",
		Long: `logs shows what the instances of a role on a node wrote to their log. Of a record in JSON it shows the time (UTC), the level, the message and the fields; every
other line is shown as it is. Where an instance begins, the core has written a line of its own.

With --follow it goes on with what they write, over restarts of the role and of reeved, until it is interrupted. With --previous it shows what the instance
before the present one wrote, or the last one if none runs. With -o json or yaml every line is a document of its own: the line as it was written, and the
record if it is one.`,
		Example: `  reeve logs self lighthouse --since 10m
  reeve logs self lighthouse --previous --tail 50
  reeve logs self lighthouse -o json | jq -c .record`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if follow && previous {
				return fault.New(fault.Usage, "--previous and --follow contradict each other: nothing is added to what a former instance wrote", "Give one of them.")
			}
			request := &nodev1.ReadLogRequest{Role: given[1], Tail: tail, Follow: follow, Previous: previous}
			if since > 0 {
				request.Since = timestamppb.New(c.Now().Add(-since))
			}
			if follow {
				return c.followLog(cmd.Context(), given[0], request)
			}
			return c.withNode(cmd.Context(), given[0], func(api nodev1.NodeServiceClient, node target.Node) error {
				return receiveLog(cmd.Context(), api, node, request, c.writeLog)
			})
		},
	}
	cmd.Flags().Uint32Var(&tail, "tail", 0, "only the last lines, that many (default: all that is kept)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written, until interrupted")
	cmd.Flags().BoolVarP(&previous, "previous", "p", false, "only what the former instance wrote; not with --follow")
	cmd.Flags().DurationVar(&since, "since", 0, "only lines that are not older, such as 10m; a line without a time is as old as the one before it")
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
func (c *commands) followLog(ctx context.Context, name string, request *nodev1.ReadLogRequest) error {
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
				return c.resumeLog(ctx, api, node, request.GetRole(), place, show)
			}
			first = false
			return receiveLog(ctx, api, node, request, show)
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

// writeLog writes whole lines of a log. Where standard output is no terminal, a line that is no record is written byte for byte.
func (c *commands) writeLog(data []byte) error {
	for line := range bytes.Lines(data) {
		document := output.NewLogLine(string(bytes.TrimSuffix(line, []byte("\n"))))
		var err error
		if c.format == output.Table && !c.StdoutIsTerminal && document.Record == nil {
			_, err = c.Stdout.Write(line)
		} else {
			err = output.PrintNext(c.Stdout, c.format, document, c.Now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
