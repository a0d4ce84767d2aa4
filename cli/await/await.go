package await

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Settle is how long something that speaks against a condition, and may be older than the change that is waited for, must last before it counts as
// the answer: a role that was Failed from the beginning, or is Blocked, as it is for a moment while another one that it requires restarts.
const Settle = 3 * time.Second

// Seen is what is known of a node.
type Seen struct {
	// Node is the node as the cluster has it; nil until a curator has said it.
	Node *clusterv1.Node
	// Status is the node as it sees itself; nil until it has said it.
	Status *nodev1.Status
}

// Source streams what is known of a node. It calls see with the present state and after every change, with one of the fields of Seen set, and lost
// with the reason whenever it has to begin anew; it returns when ctx ends, or when it is refused.
type Source func(ctx context.Context, see func(Seen), lost func(error)) error

// Outcome is what a condition says of the present.
type Outcome int

// The outcomes.
const (
	// Same: nothing that matters to the condition has changed.
	Same Outcome = iota
	// Pending: it is not met yet.
	Pending
	// Done: it is met.
	Done
	// Doubtful: it will be Refused if it stays as it is for Settle.
	Doubtful
	// Refused: it will not be met unless somebody acts.
	Refused
)

// Verdict is what a condition says of the present.
type Verdict struct {
	Outcome Outcome
	// Text is the present state, for people: "role lighthouse is Starting".
	Text string
	// Details and Next are those of the fault with which the wait ends, if it ends now.
	Details []string
	Next    string
}

// Condition is a condition on the state of a node. It is used for one wait.
type Condition interface {
	// Wanted is what is waited for: "role lighthouse is Ready". Unmet is its opposite: "role lighthouse is not Ready".
	Wanted() string
	Unmet() string
	// See is called with what is known, and again whenever that changes.
	See(Seen) Verdict
}

// Progress is told what is waited for.
type Progress interface {
	// Now reports the present state. The same text again is no news.
	Now(text string)
}

// For waits until all conditions are met at the same time, or until one of them cannot be met any more. ctx bounds the wait. It returns the state,
// one sentence for each condition. Errors are fault.Errors that name the node and its state.
func For(ctx context.Context, nodeID string, sources []Source, conditions []Condition, progress Progress) ([]string, error) {
	if len(sources) == 0 {
		return nil, errors.New("await: there is no source")
	}
	f := newFeed(ctx, sources)
	defer f.stop()
	w := wait{nodeID: nodeID, conditions: conditions, verdicts: make([]Verdict, len(conditions))}
	settled := time.NewTimer(Settle)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case seen := <-f.states:
			before := w.doubtful()
			refused := w.see(seen)
			progress.Now(w.text())
			switch {
			case refused != nil:
				return nil, w.refusal(*refused)
			case w.done():
				return w.texts(), nil
			}
			// What is doubted is doubted from when it was seen so.
			if after := w.doubtful(); after == nil {
				settled.Stop()
			} else if after != before || after.Outcome == Doubtful && w.changed {
				settled.Reset(Settle)
			}
		case <-settled.C:
			return nil, w.refusal(*w.doubtful())
		case err := <-f.losses:
			// The command itself goes on: advice on what else to do would mislead.
			text := err.Error()
			if lost := (*fault.Error)(nil); errors.As(err, &lost) {
				text = lost.What
			}
			progress.Now("contact is lost: " + output.Clean(text))
		case err := <-f.ended:
			if ctx.Err() != nil {
				return nil, w.timeout(ctx)
			}
			return nil, err
		case <-ctx.Done():
			return nil, w.timeout(ctx)
		}
	}
}

// feed merges what the sources say.
type feed struct {
	states  chan Seen
	losses  chan error
	ended   chan error
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newFeed(ctx context.Context, sources []Source) *feed {
	// The time limit is not theirs: a server that ends a call because of it would look like one that stops.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &feed{states: make(chan Seen), losses: make(chan error), ended: make(chan error, len(sources)), cancel: cancel}
	for _, source := range sources {
		f.running.Go(func() {
			f.ended <- source(ctx,
				func(seen Seen) { send(ctx, f.states, seen) },
				func(err error) { send(ctx, f.losses, err) })
		})
	}
	return f
}

// stop ends the sources and returns when they have ended.
func (f *feed) stop() {
	f.cancel()
	f.running.Wait()
}

func send[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

// wait is what has been seen so far.
type wait struct {
	nodeID     string
	conditions []Condition
	verdicts   []Verdict
	known      Seen
	// changed says that what was last seen changed a verdict that is doubtful.
	changed bool
}

// see takes what has become known, and returns the verdict by which the wait is over, nil if there is none.
func (w *wait) see(seen Seen) (refused *Verdict) {
	if seen.Node != nil {
		w.known.Node = seen.Node
	}
	if seen.Status != nil {
		w.known.Status = seen.Status
	}
	w.changed = false
	for i, condition := range w.conditions {
		verdict := condition.See(w.known)
		if verdict.Outcome == Same {
			continue
		}
		w.verdicts[i] = verdict
		w.changed = w.changed || verdict.Outcome == Doubtful
		if verdict.Outcome == Refused && refused == nil {
			refused = &w.verdicts[i]
		}
	}
	return refused
}

func (w *wait) done() bool {
	for _, verdict := range w.verdicts {
		if verdict.Outcome != Done {
			return false
		}
	}
	return true
}

// doubtful is the first verdict that will be a refusal if it stays.
func (w *wait) doubtful() *Verdict {
	for i := range w.verdicts {
		if w.verdicts[i].Outcome == Doubtful {
			return &w.verdicts[i]
		}
	}
	return nil
}

func (w *wait) texts() []string {
	var texts []string
	for _, verdict := range w.verdicts {
		texts = append(texts, verdict.Text)
	}
	return texts
}

// text is the state of the conditions that are not met yet, or of all of them if there are none.
func (w *wait) text() string {
	var texts []string
	for _, verdict := range w.verdicts {
		if verdict.Outcome != Done && verdict.Text != "" {
			texts = append(texts, verdict.Text)
		}
	}
	if len(texts) == 0 {
		texts = w.texts()
	}
	return strings.Join(texts, "; ")
}

func (w *wait) refusal(verdict Verdict) error {
	err := fault.New(fault.Failed, verdict.Text+" on node "+w.nodeID, verdict.Next)
	err.Details = verdict.Details
	return err
}

func (w *wait) timeout(ctx context.Context) error {
	const goesOn = "The cluster goes on with what it was told; run `reeve status` to see how far it is."
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fault.New(fault.Failed, "interrupted", goesOn)
	}
	for i, verdict := range w.verdicts {
		if verdict.Outcome == Done {
			continue
		}
		last := verdict.Text
		if last == "" {
			last = "nobody has reported the node"
		}
		err := fault.New(fault.Failed, w.conditions[i].Unmet()+" on node "+w.nodeID+" in time: "+last, goesOn)
		err.Details = verdict.Details
		return err
	}
	return fault.New(fault.Failed, "node "+w.nodeID+" did not meet all conditions together before the timeout: "+w.text(), goesOn)
}
