package await

import "github.com/reeveproject/reeve/cli/output"

// Volume is the condition that the volume of a node is in a state.
type Volume struct {
	// State is its name, such as "Open".
	State string

	last Verdict
}

var _ Condition = (*Volume)(nil)

// Wanted implements Condition.
func (v *Volume) Wanted() string { return "the volume is " + v.State }

// Unmet implements Condition.
func (v *Volume) Unmet() string { return "the volume is not " + v.State }

// See implements Condition.
func (v *Volume) See(known Seen) Verdict {
	verdict := Verdict{Outcome: Pending, Text: "the node has not said how its volume is"}
	storage := known.Status.GetStorage()
	switch closed := output.ExplainClosed(storage); {
	case storage == nil:
	case output.State(storage.GetState()) == v.State:
		verdict.Outcome, verdict.Text = Done, v.Wanted()
	case closed != "":
		verdict.Text = output.Clean(closed)
	default:
		verdict.Text = "the volume is " + output.State(storage.GetState())
	}
	return news(&v.last, verdict)
}
