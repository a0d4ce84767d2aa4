package rolewait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Settle is how long a role must be Blocked, or Failed if it was so from the beginning, before that counts as the answer. What the node has
// reported may be older than the change, and a role is Blocked for a moment while another one that it requires restarts.
const Settle = 3 * time.Second

// Watcher streams the state of a node: *target.Target is one. It calls see with the present state and after every change, and lost with the
// reason whenever it has to begin anew; it returns when ctx ends or the cluster refuses.
type Watcher interface {
	WatchNode(ctx context.Context, nodeID string, see func(*clusterv1.Node), lost func(error)) error
}

// Progress is told what is waited for.
type Progress interface {
	// Now says what is so at present. The same text again is no news.
	Now(text string)
}

// Change is what is waited for.
type Change struct {
	NodeID string
	Role   string
	// Generation is that of the role's assignment; 0: the role is to be gone.
	Generation uint64
}

// For waits until a change is so, or until it can be said that it will not be: the role is Failed or Blocked with the changed configuration.
// It returns what the node reports of the role, nil if it is gone. The wait is bounded by ctx. Errors are fault.Errors with the
// role's reason.
func For(ctx context.Context, watcher Watcher, change Change, progress Progress) (*clusterv1.InstanceStatus, error) {
	watch, cancel := context.WithCancel(ctx)
	states := make(chan *clusterv1.Node)
	losses := make(chan error)
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.WatchNode(watch, change.NodeID,
			func(node *clusterv1.Node) { send(watch, states, node) },
			func(err error) { send(watch, losses, err) })
	}()
	running := true
	defer func() {
		cancel()
		if running {
			<-ended //nolint:errcheck // what was waited for is known; this only waits for the watch to end
		}
	}()

	w := wait{change: change}
	settled := time.NewTimer(Settle)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case node := <-states:
			verdict := w.see(node)
			progress.Now(w.text())
			switch verdict {
			case done:
				return w.instance, nil
			case refused:
				return nil, w.refusal()
			case doubtful:
				settled.Reset(Settle)
			case pending:
				settled.Stop()
			case same:
			}
		case <-settled.C:
			return nil, w.refusal()
		case err := <-losses:
			// The command itself goes on: advice on what else to do would mislead.
			text := err.Error()
			if lost := (*fault.Error)(nil); errors.As(err, &lost) {
				text = lost.What
			}
			progress.Now("the cluster API is out of reach: " + output.Clean(text))
		case err := <-ended:
			running = false
			if ctx.Err() != nil {
				return nil, w.timeout(ctx)
			}
			return nil, err
		case <-ctx.Done():
			return nil, w.timeout(ctx)
		}
	}
}

func send[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

type verdict int

const (
	// same: nothing that matters has changed.
	same verdict = iota
	pending
	done
	// doubtful: it will be refused, if it stays so.
	doubtful
	refused
)

// wait is what has been seen so far.
type wait struct {
	change   Change
	seen     bool
	instance *clusterv1.InstanceStatus
	// inherited says that the present state is one that the first message already had.
	inherited bool
}

func (w *wait) see(node *clusterv1.Node) verdict {
	var instance *clusterv1.InstanceStatus
	for _, candidate := range node.GetStatus().GetInstances() {
		if candidate.GetRole() == w.change.Role {
			instance = candidate
		}
	}
	unchanged := w.seen && sameState(w.instance, instance)
	w.inherited = !w.seen || (w.inherited && unchanged)
	w.instance, w.seen = instance, true
	if w.change.Generation == 0 {
		if instance == nil {
			return done
		}
		return pending
	}
	if instance.GetConfigurationGeneration() != w.change.Generation {
		return pending
	}
	switch instance.GetState() {
	case hostv1.InstanceState_INSTANCE_STATE_READY:
		return done
	case hostv1.InstanceState_INSTANCE_STATE_FAILED:
		if !w.inherited {
			return refused
		}
	case hostv1.InstanceState_INSTANCE_STATE_BLOCKED:
	default:
		return pending
	}
	if unchanged {
		return same
	}
	return doubtful
}

func sameState(a, b *clusterv1.InstanceStatus) bool {
	return (a == nil) == (b == nil) &&
		a.GetState() == b.GetState() &&
		a.GetReason() == b.GetReason() &&
		a.GetConfigurationGeneration() == b.GetConfigurationGeneration() &&
		a.GetSince().AsTime().Equal(b.GetSince().AsTime())
}

// text says what is so, for people.
func (w *wait) text() string {
	switch {
	case w.instance == nil && w.change.Generation == 0:
		return fmt.Sprintf("role %s is gone", w.change.Role)
	case w.instance == nil:
		return fmt.Sprintf("role %s is not reported by the node yet", w.change.Role)
	}
	text := fmt.Sprintf("role %s is %s", w.change.Role, output.State(w.instance.GetState()))
	if reason := w.instance.GetReason(); reason != "" {
		text += ": " + output.Clean(reason)
	}
	if w.change.Generation != 0 && w.instance.GetConfigurationGeneration() != w.change.Generation {
		text += " (still with its former configuration)"
	}
	return text
}

func (w *wait) refusal() error {
	return fault.New(fault.Failed, fmt.Sprintf("%s on node %s", w.text(), w.change.NodeID),
		fmt.Sprintf("Run `reeve logs %s %s` to see what it wrote.", w.change.NodeID, w.change.Role))
}

func (w *wait) timeout(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Failed, "interrupted; the cluster goes on with the change", "Run `reeve status` to see how far it is.")
	}
	last := "the cluster has not said how the node is"
	if w.seen {
		last = w.text()
	}
	wanted := "Ready"
	if w.change.Generation == 0 {
		wanted = "gone"
	}
	return fault.New(fault.Failed,
		fmt.Sprintf("role %s of node %s is not %s in time: %s", w.change.Role, w.change.NodeID, wanted, last),
		"The cluster goes on with the change; run `reeve status` to see how far it is.")
}
