package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Unsafe returns why a change would cost the consensus store its quorum, in sentences: those that answer of the voters which stay must be a majority of them. It
// goes by what the store's leader has last told. The consensus role looks again, step by step; this is to say so before anything was decided.
//
// That somebody is to stay after all can cost it as well, while others leave. What was unsafe before, since members have died meanwhile, does not stand in the way of what makes it
// better.
func Unsafe(before, after *store.State) []string {
	stayed, stay := before.StoreNodes(), after.StoreNodes()
	if len(stay) == 0 {
		return nil // that none is left is another rule's (Lost)
	}
	leaving := slices.DeleteFunc(slices.Clone(stayed), func(id string) bool { return slices.Contains(stay, id) })
	if before.Store == nil && len(leaving) > 0 {
		return []string{fmt.Sprintf("the consensus store has not told yet which of its members answer, and without that none may leave it (%s): try again once `reeve node list` shows them",
			strings.Join(leaving, ", "))}
	}
	was, is := poll(before, stayed), poll(before, stay)
	if slices.Equal(was.voters, is.voters) || len(is.going) == 0 {
		return nil // who does not vote is not missed
	}
	going := strings.Join(is.going, ", ")
	switch {
	case len(is.voters) == 0:
		return []string{fmt.Sprintf("no voting member of the consensus store would be left without %s: wait until %s has one (`reeve node list`)",
			going, strings.Join(stay, " or "))}
	case is.margin() > 0 || is.margin() > was.margin():
		return nil
	case 2*(len(is.voters)-len(is.silent)) > len(is.voters):
		return []string{fmt.Sprintf("the consensus store would have no quorum without %s, since members that stay do not reach each other (%s): "+
			"open the way between these nodes first", going, strings.Join(is.apart, ", "))}
	}
	reason := fmt.Sprintf("the consensus store would have no quorum without %s, since of the %d voting members left those of %s do not answer: "+
		"bring them back, or take them out first", going, len(is.voters), strings.Join(is.silent, ", "))
	if len(is.apart) > 0 {
		reason += fmt.Sprintf("; others do not reach each other (%s): open the way between these nodes", strings.Join(is.apart, ", "))
	}
	return []string{reason}
}

// polled is the voting members of the consensus store by what becomes of them, as IDs of their nodes.
type polled struct {
	voters []string // those that stay
	silent []string // those of them that do not answer
	going  []string // the others
	apart  []string // pairs of those that stay and answer, which do not reach each other
	linked int      // how many that stay and answer one of them reaches at most, itself included
}

// margin is more than 0 if one of those that answer reaches a majority of those that stay.
func (p polled) margin() int { return 2*p.linked - len(p.voters) }

func poll(state *store.State, stay []string) (p polled) {
	for _, member := range state.Store.GetMembers() {
		switch id := member.GetNodeId(); {
		case !votes(member):
		case !slices.Contains(stay, id):
			p.going = append(p.going, id)
		default:
			p.voters = append(p.voters, id)
			if !member.GetHealthy() {
				p.silent = append(p.silent, id)
			}
		}
	}
	p.linked, p.apart = links(state, slices.DeleteFunc(slices.Clone(p.voters), func(id string) bool { return slices.Contains(p.silent, id) }))
	return p
}

// links returns how many of the members of some nodes one of them reaches at most, itself included, and the pairs of nodes whose members do not reach each other.
func links(state *store.State, nodes []string) (most int, apart []string) {
	for n, id := range nodes {
		linked := len(nodes)
		for m, other := range nodes {
			if !slices.Contains(state.StoreMember(id).GetUnreached(), other) && !slices.Contains(state.StoreMember(other).GetUnreached(), id) {
				continue
			}
			linked--
			if n < m {
				apart = append(apart, id+" and "+other)
			}
		}
		most = max(most, linked)
	}
	return most, apart
}

// Abrupt returns why the consensus store cannot do without the member of a node from one moment to the next, in sentences: the others must be able to decide that it
// goes, so those of them that answer must be a majority of all. Whether it answers itself is told as well.
//
// What the store last told may be older than what was decided since. A node that was deleted wipes itself at once, while its member is one of all until the store has let it
// go; and a learner that is to stay may have been promoted: it is missed if it does not answer, and is nothing to build on if it does.
func Abrupt(state *store.State, node string) (reasons []string, answers bool) {
	own, desired := state.StoreMember(node), state.StoreNodes()
	mayVote := func(member *consensusv1.StoreStateMember) bool {
		return votes(member) || member.GetMemberId() != "" && slices.Contains(desired, member.GetNodeId())
	}
	if !mayVote(own) {
		return nil, false
	}
	voters := 0
	var answer, silent, removed []string
	for _, member := range state.Store.GetMembers() {
		id := member.GetNodeId()
		here := runs(state.Nodes[id])
		switch {
		case !mayVote(member):
		case id == node:
			voters++
		case !here:
			voters++
			removed = append(removed, id)
		case !member.GetHealthy():
			voters++
			silent = append(silent, id)
		case votes(member):
			voters++
			answer = append(answer, id)
		}
	}
	answering, apart := links(state, answer)
	if 2*answering > voters {
		return nil, own.GetHealthy()
	}
	reason := fmt.Sprintf("the %d other voting members of the consensus store that answer are no majority of its %d, and could not decide that the one of %s goes",
		answering, voters, node)
	if len(silent) > 0 {
		reason += fmt.Sprintf("; those of %s do not answer", strings.Join(silent, ", "))
	}
	if len(apart) > 0 {
		reason += fmt.Sprintf("; some do not reach each other: %s; open the way between these nodes first", strings.Join(apart, ", "))
	}
	if len(removed) > 0 {
		reason += fmt.Sprintf("; those of %s, which were removed, it has not let go yet: wait until it has (`reeve node list`)", strings.Join(removed, ", "))
	}
	return []string{reason}, own.GetHealthy()
}

// runs reports whether a node may still run what it has: one that was deleted ends it at once.
func runs(node *clusterv1.NodeRecord) bool {
	return node.GetState() == clusterv1.NodeState_NODE_STATE_UP || node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONING
}

func votes(member *consensusv1.StoreStateMember) bool {
	return member.GetMemberId() != "" && !member.GetLearner()
}
