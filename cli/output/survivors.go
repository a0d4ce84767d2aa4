package output

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Survivors is the document of `reeve store recover-quorum`: what is left of a store that has lost its majority.
type Survivors struct {
	ClusterID string `json:"cluster_id"`
	// RecoveryID is that of the recovery that was begun; empty: none was.
	RecoveryID string `json:"recovery_id"`
	// Chosen is the node whose member becomes, or has become, the only one.
	Chosen    string     `json:"chosen"`
	Survivors []Survivor `json:"survivors"`
	// Lost are the nodes with members that nobody reaches.
	Lost []string `json:"lost"`
	// Outcome is what was done: "", "recovered" or "abandoned".
	Outcome string `json:"outcome"`
	// Generation is the number of the store's generation from now on.
	Generation uint64 `json:"generation"`
	// Seconds is how long it took from the first promise to the first write that the store acknowledged.
	Seconds float64 `json:"seconds"`
}

// Survivor is a node that was asked for its member.
type Survivor struct {
	NodeID  string `json:"node_id"`
	Address string `json:"address"`
	// Problem is why it is no survivor; empty: it is one.
	Problem   string `json:"problem"`
	MemberID  string `json:"member_id"`
	Voter     bool   `json:"voter"`
	Term      uint64 `json:"term"`
	Committed uint64 `json:"committed_index"`
	// LastTerm and LastIndex are those of the last entry of its log.
	LastTerm     uint64 `json:"last_term"`
	LastIndex    uint64 `json:"last_index"`
	Revision     int64  `json:"revision"`
	Generation   uint64 `json:"generation"`
	GenerationID string `json:"generation_id"`
	// Damage is why its data is not to be trusted; empty: it is, as far as is known. Unusable: it cannot become the only member.
	Damage   string `json:"damage"`
	Unusable bool   `json:"unusable"`
	// Promise is the recovery that it has promised and that is not done.
	Promise string `json:"promise"`
	// State is how far that has come.
	State string `json:"state"`
}

// NewSurvivor is what a member has said.
func NewSurvivor(nodeID, address string, m *consensusv1.MemberState) Survivor {
	s := Survivor{
		NodeID: nodeID, Address: address, MemberID: m.GetMemberId(), Voter: m.GetVoter(), Term: m.GetTerm(), Committed: m.GetCommittedIndex(),
		LastTerm: m.GetLastTerm(), LastIndex: m.GetLastIndex(), Revision: m.GetRevision(), Generation: m.GetGeneration(), GenerationID: hex.EncodeToString(m.GetGenerationId()),
		Damage: m.GetDamage(), Unusable: m.GetUnusable(),
	}
	switch phase := m.GetRecovery().GetPhase(); {
	case phase == consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED:
		s.State, s.Promise = "stopped: it has promised recovery "+m.Recovery.Id, m.Recovery.Id
	case phase == consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_BEGUN, phase == consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_FORCED:
		s.State, s.Promise = "becoming the only member by recovery "+m.Recovery.Id, m.Recovery.Id
	case m.GetQuorum():
		s.State = "has a quorum"
	case !m.GetVoter():
		s.State = "does not vote"
	default:
		s.State = "no quorum"
	}
	return s
}

func (s Survivors) table(w io.Writer, _ time.Time) {
	switch s.Outcome {
	case "recovered":
		_, _ = fmt.Fprintf(w, "The member of node %s is the only one of the store, which is generation %s now and takes writes (after %.1f s).\n", s.Chosen, showGeneration(s.Generation, s.RecoveryID), s.Seconds)
		return
	case "abandoned":
		_, _ = fmt.Fprintln(w, "The recovery was given up: the members vote again.")
		return
	}
	row(w, "NODE", "MEMBER", "TERM", "COMMITTED", "LAST ENTRY", "GENERATION", "STATE")
	for _, one := range s.Survivors {
		if one.Problem != "" {
			row(w, one.NodeID, "-", "-", "-", "-", "-", "not reached at "+one.Address+": "+one.Problem)
			continue
		}
		row(w, one.NodeID, one.MemberID, fmt.Sprint(one.Term), fmt.Sprint(one.Committed), fmt.Sprintf("%d/%d", one.LastTerm, one.LastIndex), showGeneration(one.Generation, one.GenerationID), one.State)
	}
	for _, node := range s.Lost {
		row(w, node, "", "", "", "", "", "nobody knows where it is reached")
	}
	for _, one := range s.Survivors {
		if one.Unusable {
			_, _ = fmt.Fprintf(w, "The member of node %s cannot become the only one: %s.\n", one.NodeID, Clean(one.Damage))
		} else if one.Damage != "" {
			_, _ = fmt.Fprintf(w, "The data of the member of node %s is not to be trusted: %s.\n", one.NodeID, Clean(one.Damage))
		}
	}
	_, _ = fmt.Fprintln(w, cmp.Or(s.freshest(), "No member can become the only one."))
}

// showGeneration is ShowGeneration of an ID in hexadecimal digits.
func showGeneration(number uint64, id string) string {
	decoded, _ := hex.DecodeString(id) // it was encoded here
	return consensusv1.ShowGeneration(number, decoded)
}

func (s Survivors) freshest() string {
	if s.Chosen == "" {
		return ""
	}
	return "The freshest is that of node " + s.Chosen + "."
}
