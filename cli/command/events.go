package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// nodeArgument is how every command explains its argument NODE.
const nodeArgument = `NODE is a node's ID, an unambiguous beginning of it, or "self" for the local node: that of the dev directory or of the socket.`

// eventOptions are the flags of `reeve events`.
type eventOptions struct {
	watch bool
	tail  uint32
	since time.Duration
}

func (c *commands) events() *cobra.Command {
	var options eventOptions
	cmd := &cobra.Command{
		Use:   "events [NODE]",
		Short: "Show what happened on a node",
		Long: `events shows what happened on a node, the oldest first. With --watch it goes on with what happens, over restarts of reeved, until it is interrupted;
every event is then a document of its own.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if options.watch {
				return c.watchEvents(cmd.Context(), optional(given), options)
			}
			return c.listEvents(cmd.Context(), optional(given), options)
		},
	}
	cmd.Flags().BoolVarP(&options.watch, "watch", "w", false, "go on with what happens, until interrupted")
	cmd.Flags().Uint32Var(&options.tail, "tail", 0, "only the last events, that many (default: all that are kept)")
	cmd.Flags().DurationVar(&options.since, "since", 0, "only events that are not older, such as 10m")
	return cmd
}

// optional is the only argument of a command, or nothing.
func optional(given []string) string {
	if len(given) == 0 {
		return ""
	}
	return given[0]
}

const eventsNext = "Run `reeve status` to see how the node is."

func (c *commands) listEvents(ctx context.Context, name string, options eventOptions) error {
	return c.withNode(ctx, name, func(api nodev1.NodeServiceClient, node target.Node) error {
		events, err := c.readEvents(ctx, api, node, options)
		if err != nil {
			return err
		}
		return c.print(output.Events{NodeID: node.ID, Events: events})
	})
}

// readEvents returns the events that a node keeps.
func (c *commands) readEvents(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, options eventOptions) ([]*nodev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	var events []*nodev1.Event
	err := receiveEvents(ctx, api, node, &nodev1.WatchEventsRequest{Tail: options.tail}, func(event *nodev1.Event) error {
		if c.recent(event, options.since) {
			events = append(events, event)
		}
		return nil
	})
	return events, err
}

// recent says whether an event is not older than since; 0: any.
func (c *commands) recent(event *nodev1.Event, since time.Duration) bool {
	return since == 0 || !event.GetTime().AsTime().Before(c.Now().Add(-since))
}

func receiveEvents(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, request *nodev1.WatchEventsRequest,
	see func(*nodev1.Event) error) error {
	// Ends the stream on every way out.
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	what := "cannot read the events of node " + node.ID
	stream, err := api.WatchEvents(stop, request)
	if err != nil {
		return fault.FromRPC(err, what, eventsNext)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return streamFault(ctx, err, request.GetFollow(), what, eventsNext)
		}
		for _, event := range response.GetEvents() {
			if err := see(event); err != nil {
				return err
			}
		}
	}
}

func (c *commands) watchEvents(ctx context.Context, name string, options eventOptions) error {
	if c.format == output.Table {
		output.EventHead(c.Stdout)
	}
	var last uint64
	tail := options.tail
	err := c.follow(ctx, name, c.notices(follower{
		once: func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) error {
			request := &nodev1.WatchEventsRequest{After: last, Tail: tail, Follow: true}
			return receiveEvents(ctx, api, node, request, func(event *nodev1.Event) error {
				// From here on everything is wanted, however much it was meanwhile.
				last, tail = event.GetSequence(), 0
				if !c.recent(event, options.since) {
					return nil
				}
				return output.PrintNext(c.Stdout, c.format, output.Event{Event: event}, c.Now())
			})
		},
	}))
	return untilInterrupted(ctx, err)
}
