package rules

import (
	"fmt"
	"strings"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// Irreplaceable returns why the member of a node cannot be removed from the consensus store for a new one to take its place, in sentences: the others that answer must be a majority of
// those that stay. One of two that differ counts: a person has said which of them is right. Where the member does not answer itself, they must be a majority of all, or nobody could decide it.
func Irreplaceable(state *store.State, node string) []string {
	if own := state.StoreMember(node); own == nil || !votes(own) {
		return nil // who does not vote is not missed
	}
	voters := 1
	var answer, silent []string
	for _, member := range state.Store.GetMembers() {
		switch id := member.GetNodeId(); {
		case id == node || !votes(member):
			continue
		case member.GetHealthy() && !member.GetDamageCertain() && runs(state.Nodes[id]):
			answer = append(answer, id)
		default:
			silent = append(silent, id)
		}
		voters++
	}
	linked, apart := links(state, answer)
	needed := voters - 1
	if !state.StoreMember(node).GetHealthy() {
		needed = voters
	}
	if 2*linked > needed {
		return nil
	}
	reason := fmt.Sprintf("the consensus store would have no quorum without its member of node %s: of its %d other voting members only %d answer and are well", node, voters-1, len(answer))
	if len(silent) > 0 {
		reason += fmt.Sprintf("; those of %s do not, or are damaged, too: bring these back first, or replace them first", strings.Join(silent, ", "))
	}
	if len(apart) > 0 {
		reason += fmt.Sprintf("; some do not reach each other (%s): open the way between these nodes first", strings.Join(apart, ", "))
	}
	return []string{reason}
}
