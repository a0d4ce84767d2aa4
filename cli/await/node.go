package await

import (
	"github.com/reeveproject/reeve/cli/output"
)

// Membership is the condition that a node sees itself in a membership state.
type Membership struct {
	// State is its name, such as "Home".
	State string

	last Verdict
}

// Healthy is the condition that a node's heartbeat is fresh, as the cluster sees it.
type Healthy struct{ last Verdict }

var (
	_ Condition = (*Membership)(nil)
	_ Condition = (*Healthy)(nil)
)

// Wanted implements Condition.
func (m *Membership) Wanted() string { return "the node is " + m.State }

// Unmet implements Condition.
func (m *Membership) Unmet() string { return "the node is not " + m.State }

// See implements Condition.
func (m *Membership) See(known Seen) Verdict {
	verdict := Verdict{Outcome: Pending, Text: "the node has not said how it is"}
	if known.Status != nil {
		membership := known.Status.GetMembership()
		state := output.State(membership.GetState())
		verdict.Text = "the node is " + state
		if membership.GetReason() != "" {
			verdict.Text += ": " + output.Clean(membership.GetReason())
		}
		if closed := output.ExplainClosed(known.Status.GetStorage()); closed != "" {
			// That is why, and says what to do.
			verdict.Text = output.Clean(closed)
		}
		switch state {
		case m.State:
			verdict.Outcome = Done
		case "Disowning":
			// There is no way back from there.
			verdict.Outcome, verdict.Next = Refused, "The node was removed from its cluster, for good."
		}
	}
	return news(&m.last, verdict)
}

// Wanted implements Condition.
func (h *Healthy) Wanted() string { return "the node is healthy" }

// Unmet implements Condition.
func (h *Healthy) Unmet() string { return "the node is not healthy" }

// See implements Condition.
func (h *Healthy) See(known Seen) Verdict {
	verdict := Verdict{Outcome: Pending, Text: "no curator has said how the node is"}
	switch {
	case known.Node.GetHealthy():
		verdict = Verdict{Outcome: Done, Text: "the node is healthy"}
	case known.Node != nil:
		verdict.Text = "the node's heartbeat is not fresh"
	}
	return news(&h.last, verdict)
}

// news returns a verdict, or Same if it is the last one.
func news(last *Verdict, verdict Verdict) Verdict {
	if last.Outcome == verdict.Outcome && last.Text == verdict.Text {
		return Verdict{Outcome: Same}
	}
	*last = verdict
	return verdict
}
