package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// withFound runs do with the cluster of the command line and a node of it. The empty name is the local node, or the only one.
func (c *commands) withFound(ctx context.Context, name string, do func(*target.Target, target.Node) error) error {
	return c.withTarget(ctx, func(cluster *target.Target) error {
		node, err := cluster.FindNode(ctx, name)
		if err != nil {
			return err
		}
		return do(cluster, node)
	})
}

// withNode is withFound with the node's own API.
func (c *commands) withNode(ctx context.Context, name string, do func(nodev1.NodeServiceClient, target.Node) error) error {
	return c.withFound(ctx, name, func(cluster *target.Target, node target.Node) error {
		api, err := cluster.NodeAPI(ctx, node)
		if err != nil {
			return err
		}
		return do(api, node)
	})
}

// How long follow waits before it looks for a node again: at first about as long as one needs to start, and never so long that somebody who waits at
// a terminal would notice.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// follower is how a command goes on with a node that restarts.
type follower struct {
	// once asks the node, which has just said that it is there, and returns when the answer ends.
	once func(ctx context.Context, api nodev1.NodeServiceClient, node target.Node) error
	// lost and back are told once for every time that the node is away.
	lost func(error)
	back func()
}

// follow asks a node until ctx ends, again whenever contact is lost. It looks for the node anew each time: one that restarts may serve at another
// address. A node that is away from the beginning is an error, unless it has never told the cluster where it is, as one that was just approved.
func (c *commands) follow(ctx context.Context, name string, f follower) error {
	seen, away := false, false
	pause := firstRetry
	for {
		var began time.Time
		err := c.withNode(ctx, name, func(api nodev1.NodeServiceClient, node target.Node) error {
			if _, err := askStatus(ctx, api, node); err != nil {
				return err
			}
			if away {
				f.back()
			}
			// The same one from now on, whatever the others are called.
			name, seen, away, began = node.ID, true, false, time.Now()
			return f.once(ctx, api, node)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !seen && !errors.Is(err, target.ErrSilent) || fault.CodeOf(err) != fault.Unreachable:
			return err
		case errors.Is(err, target.ErrRenewal):
			// Nobody is away: the call goes on with another certificate.
			continue
		}
		if !away {
			away = true
			f.lost(err)
		}
		// A node that answers and then ends every call is not to be asked in a tight loop.
		if !began.IsZero() && time.Since(began) > lastRetry {
			pause = firstRetry
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

// notices are the lost and back of a follower that writes to people.
func (c *commands) notices(f follower) follower {
	f.lost = func(err error) {
		text := err.Error()
		if lost := (*fault.Error)(nil); errors.As(err, &lost) {
			text = lost.What
		}
		c.say("reeve: contact is lost (" + output.Clean(text) + "); waiting for the node to be back.")
	}
	f.back = func() { c.say("reeve: the node is back.") }
	return f
}

// untilInterrupted takes the end of a command that goes on until its caller ends it for its success.
func untilInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// streamFault turns the end of a stream into an error. One that should go on and is ended by the other side is a node that stops.
func streamFault(ctx context.Context, err error, endless bool, what, next string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) && !endless {
		return nil
	}
	if code := status.Code(err); endless && (errors.Is(err, io.EOF) || code == codes.Canceled || code == codes.Unknown) {
		return fault.New(fault.Unreachable, fmt.Sprintf("%s: the node has ended the call", what), next)
	}
	return fault.FromRPC(err, what, next)
}
