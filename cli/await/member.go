package await

import (
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Member is the condition that a node has a member in the consensus store, which votes, or has none any more. On the way it says every step of the store.
type Member struct {
	// Gone is that it has none.
	Gone bool

	last Verdict
}

// Decommissioned is the condition that a node was removed from the cluster. On the way it says what the store and the roles still do.
type Decommissioned struct{ last Verdict }

var (
	_ Condition = (*Member)(nil)
	_ Condition = (*Decommissioned)(nil)
)

// Wanted implements Condition.
func (m *Member) Wanted() string {
	if m.Gone {
		return "the store has let the node's member go"
	}
	return "the node's member of the store votes"
}

// Unmet implements Condition.
func (m *Member) Unmet() string {
	if m.Gone {
		return "the store has not let the node's member go"
	}
	return "the node's member of the store does not vote"
}

// See implements Condition.
func (m *Member) See(known Seen) Verdict {
	verdict := Verdict{Outcome: Pending, Text: "no curator has said how the store is"}
	store := known.Node.GetStore()
	switch {
	case known.Node == nil:
	case m.Gone && store.GetMemberId() == "":
		verdict = Verdict{Outcome: Done, Text: m.Wanted()}
	case store == nil:
		verdict.Text = "the store does not know of the node yet"
	case !m.Gone && store.GetMemberId() != "" && !store.GetLearner() && !store.GetStuck():
		verdict = Verdict{Outcome: Done, Text: m.Wanted()}
	default:
		verdict.Text = storeText(store)
		if store.GetStuck() {
			verdict.Outcome, verdict.Next = Doubtful, "The step says why; `reeve store status` shows how the store is."
		}
	}
	return news(&m.last, verdict)
}

// storeText says what the store does for a node.
func storeText(store *clusterv1.StoreMembership) string {
	text := "the store has no member of the node yet"
	switch {
	case store.GetMemberId() != "" && store.GetLearner():
		text = "the node's member of the store learns"
	case store.GetMemberId() != "":
		text = "the node's member of the store is there"
	}
	if store.GetStep() != "" {
		text += ": " + output.Clean(store.GetStep())
	}
	return text
}

// Wanted implements Condition.
func (d *Decommissioned) Wanted() string { return "the node is Decommissioned" }

// Unmet implements Condition.
func (d *Decommissioned) Unmet() string { return "the node is not Decommissioned" }

// See implements Condition.
func (d *Decommissioned) See(known Seen) Verdict {
	verdict := Verdict{Outcome: Pending, Text: "no curator has said how the node is"}
	if known.Node != nil {
		state := known.Node.GetRecord().GetState()
		verdict.Text = "the node is " + output.State(state)
		switch store := known.Node.GetStore(); {
		case state == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
			verdict.Outcome = Done
		case store.GetStuck():
			verdict.Outcome, verdict.Text = Doubtful, storeText(store)
			verdict.Next = "The step says why; `reeve store status` shows how the store is, and it goes on when that is set right."
		case store.GetMemberId() != "":
			verdict.Text += "; " + storeText(store)
		}
	}
	return news(&d.last, verdict)
}
