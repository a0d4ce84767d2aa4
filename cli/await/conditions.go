package await

import (
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// condition is a Condition that a function judges. It remembers its last verdict only.
type condition struct {
	wanted, unmet string
	judge         func(Seen) Verdict
	last          Verdict
}

func (c *condition) Wanted() string { return c.wanted }

func (c *condition) Unmet() string { return c.unmet }

func (c *condition) See(known Seen) Verdict {
	verdict := c.judge(known)
	if c.last.Outcome == verdict.Outcome && c.last.Text == verdict.Text {
		return Verdict{Outcome: Same}
	}
	c.last = verdict
	return verdict
}

// Membership is the condition that a node sees itself in a membership state, such as "Home".
func Membership(wanted string) Condition {
	return &condition{wanted: "the node is " + wanted, unmet: "the node is not " + wanted, judge: func(known Seen) Verdict {
		if known.Status == nil {
			return Verdict{Outcome: Pending, Text: "the node has not reported its status"}
		}
		membership := known.Status.GetMembership()
		state := output.State(membership.GetState())
		verdict := Verdict{Outcome: Pending, Text: output.WithReason("the node is "+state, membership.GetReason())}
		if closed := output.ExplainClosed(known.Status.GetStorage()); closed != "" {
			// That is why, and says what to do.
			verdict.Text = output.Clean(closed)
		}
		switch state {
		case wanted:
			verdict.Outcome = Done
		case "Disowning":
			// There is no way back from there.
			verdict.Outcome, verdict.Next = Refused, "The node was removed from its cluster, for good."
		}
		return verdict
	}}
}

// Healthy is the condition that a node's heartbeat is fresh, as the cluster sees it.
func Healthy() Condition {
	return &condition{wanted: "the node is healthy", unmet: "the node is not healthy", judge: func(known Seen) Verdict {
		switch {
		case known.Node.GetHealthy():
			return Verdict{Outcome: Done, Text: "the node is healthy"}
		case known.Node != nil:
			return Verdict{Outcome: Pending, Text: "the node's heartbeat is not fresh"}
		}
		return Verdict{Outcome: Pending, Text: "no curator has reported the node"}
	}}
}

// Volume is the condition that the volume of a node is in a state, such as "Open".
func Volume(wanted string) Condition {
	text := "the volume is " + wanted
	return &condition{wanted: text, unmet: "the volume is not " + wanted, judge: func(known Seen) Verdict {
		storage := known.Status.GetStorage()
		state := output.State(storage.GetState())
		switch closed := output.ExplainClosed(storage); {
		case storage == nil:
			return Verdict{Outcome: Pending, Text: "the node has not reported its volume"}
		case state == wanted:
			return Verdict{Outcome: Done, Text: text}
		case closed != "":
			return Verdict{Outcome: Pending, Text: output.Clean(closed)}
		}
		return Verdict{Outcome: Pending, Text: "the volume is " + state}
	}}
}

// Member is the condition that a node has a member in the consensus store, which votes, or, with gone, has none any more. On the way it reports every step of the store.
func Member(gone bool) Condition {
	c := &condition{wanted: "the node's member of the store votes", unmet: "the node's member of the store does not vote"}
	if gone {
		c.wanted, c.unmet = "the store has removed the node's member", "the store has not removed the node's member"
	}
	c.judge = func(known Seen) Verdict {
		store := known.Node.GetStore()
		switch {
		case known.Node == nil:
			return Verdict{Outcome: Pending, Text: "no curator has reported the store"}
		case gone && store.GetMemberId() == "", !gone && store.GetMemberId() != "" && !store.GetLearner() && !store.GetStuck():
			return Verdict{Outcome: Done, Text: c.wanted}
		case store == nil:
			return Verdict{Outcome: Pending, Text: "the store does not know of the node yet"}
		case store.GetStuck():
			return Verdict{Outcome: Doubtful, Text: storeText(store), Next: "The step says why; `reeve store status` shows the state of the store."}
		}
		return Verdict{Outcome: Pending, Text: storeText(store)}
	}
	return c
}

// Replaced is the condition that another member of a node than a former one is in the consensus store, and votes. On the way it reports every step of the store.
func Replaced(former string) Condition {
	c := &condition{wanted: "the node's new member of the store votes", unmet: "the node's new member of the store does not vote"}
	c.judge = func(known Seen) Verdict {
		store := known.Node.GetStore()
		switch {
		case known.Node == nil:
			return Verdict{Outcome: Pending, Text: "no curator has reported the store"}
		case store.GetMemberId() == former:
			verdict := Verdict{Outcome: Pending, Text: output.WithReason("the store has the node's former member", store.GetStep())}
			if store.GetStuck() {
				verdict.Outcome, verdict.Next = Doubtful, "The step says why; `reeve store status` shows the state of the store."
			}
			return verdict
		case store.GetMemberId() != "" && !store.GetLearner() && store.GetStep() == "":
			return Verdict{Outcome: Done, Text: c.wanted}
		}
		return Verdict{Outcome: Pending, Text: storeText(store)}
	}
	return c
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
	return output.WithReason(text, store.GetStep())
}

// Decommissioned is the condition that a node was removed from the cluster. On the way it reports what the store and the roles still do.
func Decommissioned() Condition {
	return &condition{wanted: "the node is Decommissioned", unmet: "the node is not Decommissioned", judge: func(known Seen) Verdict {
		if known.Node == nil {
			return Verdict{Outcome: Pending, Text: "no curator has reported the node"}
		}
		state := known.Node.GetRecord().GetState()
		verdict := Verdict{Outcome: Pending, Text: "the node is " + output.State(state)}
		switch store := known.Node.GetStore(); {
		case state == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
			verdict.Outcome = Done
		case store.GetStuck():
			return Verdict{
				Outcome: Doubtful, Text: storeText(store),
				Next: "The step says why; `reeve store status` shows the state of the store, and the node goes on when that is set right.",
			}
		case store.GetMemberId() != "":
			verdict.Text += "; " + storeText(store)
		}
		return verdict
	}}
}
