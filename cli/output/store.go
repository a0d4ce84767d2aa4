package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// NodeStore is the document of `reeve store status`.
type NodeStore struct {
	NodeID string                   `json:"node_id"`
	Store  *consensusv1.StoreStatus `json:"store"`
}

// Recovery is the document of `reeve store recover`.
type Recovery struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// SizeBefore and SizeAfter are what the database of the node's member has on disk, in bytes.
	SizeBefore int64 `json:"size_before"`
	SizeAfter  int64 `json:"size_after"`
}

func (n NodeStore) table(w io.Writer, _ time.Time) {
	row(w, "Node", n.NodeID)
	storeRows(w, n.Store)
}

func storeRows(w io.Writer, s *consensusv1.StoreStatus) {
	member := s.GetMemberId()
	switch {
	case !s.GetFormed():
		member = "not formed yet"
	case !s.GetVoter():
		member += " (does not vote)"
	}
	row(w, "Member", member)
	quorum := "yes"
	if !s.GetQuorum() {
		quorum = "no: the store takes no writes"
	}
	row(w, "Quorum", quorum)
	if s.GetGeneration() > 0 {
		row(w, "Generation", consensusv1.ShowGeneration(s.GetGeneration(), s.GetGenerationId())+": the store was begun again")
	}
	row(w, "Leader", s.GetLeaderId())
	var members []string
	for _, one := range s.GetMembers() {
		name := cmp.Or(one.GetName(), one.GetId())
		if one.GetLearner() {
			name += " (learner)"
		}
		if one.GetSilent() {
			name += " (does not answer)"
		}
		if one.GetDamage() != "" {
			name += " (damaged)"
		}
		members = append(members, name)
	}
	row(w, "Members", strings.Join(members, ", "))
	if s.GetFormed() {
		row(w, "Tolerates", tolerance(s))
	}
	size := fmt.Sprintf("%s on disk, %s in use", formatSize(s.GetDatabaseSize()), formatSize(s.GetDatabaseInUse()))
	if s.GetQuota() > 0 {
		size += fmt.Sprintf(", %d %% of %s allowed", s.GetDatabaseSize()*100/s.GetQuota(), formatSize(s.GetQuota()))
	}
	row(w, "Database", size)
	row(w, "Leader changes", number(s.GetLeaderChanges()))
	row(w, "Problem", cmp.Or(s.GetProblem(), "none"))
}

// tolerance is how many more members of the store may fail, for people.
func tolerance(s *consensusv1.StoreStatus) string {
	var t Tolerance
	for _, member := range s.GetMembers() {
		if member.GetLearner() {
			continue
		}
		t.Voters++
		if !member.GetSilent() {
			t.Healthy++
		}
	}
	if t.Tolerates = tolerates(t.Voters, t.Healthy); t.Tolerates == 1 {
		return "1 failure"
	}
	return fmt.Sprintf("%d failures", t.Tolerates)
}

func (r Recovery) table(w io.Writer, _ time.Time) {
	if r.DryRun {
		_, _ = fmt.Fprintf(w, "The store of node %s would be compacted and defragmented: its database has %s on disk and would have about %s. Nothing was changed (--dry-run).\n",
			r.NodeID, formatSize(r.SizeBefore), formatSize(r.SizeAfter))
		return
	}
	_, _ = fmt.Fprintf(w, "The store of node %s has room again: its database had %s on disk and has %s.\n", r.NodeID, formatSize(r.SizeBefore), formatSize(r.SizeAfter))
}
