package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Unsafe returns why a change would cost the consensus store its quorum, in sentences: those that answer of the voters which stay must be a majority of them. It
// goes by what the store's leader has last told. The consensus role looks again, step by step; this is to say so before anything was decided.
func Unsafe(before, after *store.State) []string {
	stay := after.StoreNodes()
	leaving := slices.DeleteFunc(before.StoreNodes(), func(id string) bool { return slices.Contains(stay, id) })
	if len(leaving) == 0 || len(stay) == 0 {
		return nil // that none is left is another rule's (Lost)
	}
	if before.Store == nil {
		return []string{fmt.Sprintf("the consensus store has not told yet which of its members answer, and without that none may leave it (%s): try again once `reeve node list` shows them",
			strings.Join(leaving, ", "))}
	}
	if !slices.ContainsFunc(leaving, func(id string) bool { return votes(before.StoreMember(id)) }) {
		return nil // who does not vote is not missed
	}
	var left, silent, waiting []string
	for _, id := range stay {
		switch member := before.StoreMember(id); {
		case !votes(member):
			waiting = append(waiting, id)
		case member.GetHealthy():
			left = append(left, id)
		default:
			left, silent = append(left, id), append(silent, id)
		}
	}
	switch {
	case len(left) == 0:
		return []string{fmt.Sprintf("no voting member of the consensus store would be left without %s: wait until %s has one (`reeve node list`)",
			strings.Join(leaving, ", "), strings.Join(waiting, " or "))}
	case 2*len(silent) >= len(left):
		return []string{fmt.Sprintf("the consensus store would have no quorum without %s, since of the %d voting members left those of %s do not answer: "+
			"bring them back, or take them out first", strings.Join(leaving, ", "), len(left), strings.Join(silent, ", "))}
	}
	return nil
}

// Abrupt returns why the consensus store cannot do without the member of a node from one moment to the next, in sentences: the others must be able to decide that it
// goes, so those of them that answer must be a majority of all. Whether it answers itself is told as well.
func Abrupt(state *store.State, node string) (reasons []string, answers bool) {
	own := state.StoreMember(node)
	if !votes(own) {
		return nil, false
	}
	voters, answering := 0, 0
	var silent []string
	for _, member := range state.Store.GetMembers() {
		if !votes(member) {
			continue
		}
		voters++
		switch {
		case member.GetNodeId() == node:
		case member.GetHealthy():
			answering++
		default:
			silent = append(silent, member.GetNodeId())
		}
	}
	if 2*answering > voters {
		return nil, own.GetHealthy()
	}
	reason := fmt.Sprintf("the %d other voting members of the consensus store that answer are no majority of its %d, and could not decide that the one of %s goes",
		answering, voters, node)
	if len(silent) > 0 {
		reason += fmt.Sprintf("; those of %s do not answer", strings.Join(silent, ", "))
	}
	return []string{reason}, own.GetHealthy()
}

func votes(member *consensusv1.StoreStateMember) bool {
	return member.GetMemberId() != "" && !member.GetLearner()
}
