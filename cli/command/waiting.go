package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// The conditions of --wait.
const (
	untilReady   = "ready"
	untilStarted = "started"
	untilGone    = "gone"
	notAtAll     = "none"
)

// waitFlag is the value of --wait: one of its choices, the first of which is meant where none is named, or none.
type waitFlag struct {
	choices []string
	chosen  string
}

// Set implements the value of a flag.
func (w *waitFlag) Set(text string) error {
	switch {
	case text == "true":
		w.chosen = w.choices[0]
	case text == "false":
		w.chosen = notAtAll
	case slices.Contains(w.choices, text):
		w.chosen = text
	default:
		return fault.New(fault.Usage, text+" is no condition", "It is "+strings.Join(w.choices, ", ")+".")
	}
	return nil
}

// String implements the value of a flag.
func (w *waitFlag) String() string { return w.chosen }

// Type implements the value of a flag.
func (w *waitFlag) Type() string { return strings.Join(w.choices, "|") }

// waiting is how a command that changes roles waits.
type waiting struct {
	condition waitFlag
	timeout   time.Duration
}

// defaultWait is how long a command waits at most, if nothing else is said: a role that is not Ready by then rarely will be.
const defaultWait = time.Minute

// longerStops is what is said of a timeout that is the longer where roles take long to stop.
const longerStops = ", and the longer where a role is stopped that takes longer than 10s by its manifest"

func (w *waiting) flags(cmd *cobra.Command, choices ...string) {
	w.waitFlag(cmd, choices...)
	cmd.Flags().DurationVar(&w.timeout, "timeout", defaultWait, "how long to wait at most"+longerStops)
}

// waitFlag is the flag --wait alone.
func (w *waiting) waitFlag(cmd *cobra.Command, choices ...string) {
	w.condition = waitFlag{choices: choices, chosen: choices[0]}
	flag := cmd.Flags().VarPF(&w.condition, "wait", "", "what to wait for; --wait=false is none")
	flag.NoOptDefVal = choices[0]
	complete(cmd, "wait", fixed(choices...))
}

// asked says whether there is something to wait for.
func (w *waiting) asked() bool { return w.condition.chosen != notAtAll }

// state is the state of a role that is waited for.
func (w *waiting) state() await.State {
	switch w.condition.chosen {
	case untilStarted:
		return await.Started
	case untilGone:
		return await.Gone
	default:
		return await.Ready
	}
}

// await waits for conditions and says on the standard error how far it is.
func (c *commands) await(ctx context.Context, nodeID string, timeout time.Duration, sources []await.Source, conditions ...await.Condition) ([]string, error) {
	ctx, limit, cancel := await.NewLimit(ctx, timeout)
	defer cancel()
	for i, source := range sources {
		sources[i] = limit.Of(source)
	}
	var wanted []string
	for _, condition := range conditions {
		wanted = append(wanted, condition.Wanted())
	}
	lines := await.NewLines(c.Stderr, c.Width, "Waiting until "+strings.Join(wanted, " and "), c.Now)
	defer lines.Close()
	return await.For(ctx, nodeID, sources, conditions, lines)
}

// clusterSource is what the cluster says of a node. The target is not used for anything else meanwhile.
func clusterSource(cluster *target.Target, nodeID string) await.Source {
	return func(ctx context.Context, see func(await.Seen), lost func(error)) error {
		return cluster.WatchNode(ctx, nodeID, func(node *clusterv1.Node) { see(await.Seen{Node: node}) }, lost)
	}
}

// nodeSource is what a node says of itself.
func (c *commands) nodeSource(nodeID string) await.Source {
	return func(ctx context.Context, see func(await.Seen), lost func(error)) error {
		return c.follow(ctx, nodeID, follower{
			lost: lost,
			back: func() {},
			once: func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) error {
				return watchStatus(ctx, api, node, func(status *nodev1.Status) { see(await.Seen{Status: status}) })
			},
		})
	}
}

func watchStatus(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, see func(*nodev1.Status)) error {
	// Ends the stream on every way out.
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	what, next := "cannot watch node "+node.ID, "Run `reeve status` to see how the node is."
	stream, err := api.WatchStatus(stop, &nodev1.WatchStatusRequest{})
	if err != nil {
		return fault.FromRPC(err, what, next)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return streamFault(ctx, err, true, what, next)
		}
		see(response.GetStatus())
	}
}
