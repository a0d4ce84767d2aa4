package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Store is the local member of the consensus store. Sizes are in bytes.
type Store struct {
	ClusterID string `json:"cluster_id"`
	// Formed says whether the member has a store.
	Formed   bool   `json:"formed"`
	MemberID string `json:"member_id"`
	// LeaderID is empty if there is none.
	LeaderID string `json:"leader_id"`
	Quorum   bool   `json:"quorum"`
	// Voter says whether the member votes.
	Voter   bool          `json:"voter"`
	Members []StoreMember `json:"members"`
	// DatabaseSize is what the member's database has on disk, DatabaseInUse what of it is in use, Quota what it may have.
	DatabaseSize  int64 `json:"database_size"`
	DatabaseInUse int64 `json:"database_in_use"`
	Quota         int64 `json:"quota"`
	// Problem is what keeps the store from its work and what to do about it; empty: nothing.
	Problem       string `json:"problem"`
	LeaderChanges uint64 `json:"leader_changes"`
}

// StoreMember is a member of the consensus store.
type StoreMember struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Learner bool   `json:"learner"`
}

// NodeStore is the document of `reeve store status`.
type NodeStore struct {
	NodeID string `json:"node_id"`
	Store  Store  `json:"store"`
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

// NewStore makes the document of a member of the store; nil for nil.
func NewStore(s *consensusv1.StoreStatus) *Store {
	if s == nil {
		return nil
	}
	store := &Store{
		ClusterID:     s.GetClusterId(),
		Formed:        s.GetFormed(),
		MemberID:      s.GetMemberId(),
		LeaderID:      s.GetLeaderId(),
		Quorum:        s.GetQuorum(),
		Voter:         s.GetVoter(),
		Members:       []StoreMember{},
		DatabaseSize:  s.GetDatabaseSize(),
		DatabaseInUse: s.GetDatabaseInUse(),
		Quota:         s.GetQuota(),
		Problem:       s.GetProblem(),
		LeaderChanges: s.GetLeaderChanges(),
	}
	for _, member := range s.GetMembers() {
		store.Members = append(store.Members, StoreMember{ID: member.GetId(), Name: member.GetName(), Learner: member.GetLearner()})
	}
	return store
}

func (n NodeStore) table(w io.Writer, _ time.Time) {
	row(w, "Node", n.NodeID)
	n.Store.rows(w)
}

func (s Store) rows(w io.Writer) {
	member := s.MemberID
	switch {
	case !s.Formed:
		member = "not formed yet"
	case !s.Voter:
		member += " (does not vote)"
	}
	row(w, "Member", member)
	quorum := "yes"
	if !s.Quorum {
		quorum = "no: the store takes no writes"
	}
	row(w, "Quorum", quorum)
	row(w, "Leader", s.LeaderID)
	var members []string
	for _, one := range s.Members {
		name := one.Name
		if name == "" {
			name = one.ID
		}
		if one.Learner {
			name += " (learner)"
		}
		members = append(members, name)
	}
	row(w, "Members", strings.Join(members, ", "))
	size := fmt.Sprintf("%s on disk, %s in use", bytes(s.DatabaseSize), bytes(s.DatabaseInUse))
	if s.Quota > 0 {
		size += fmt.Sprintf(", %d %% of %s allowed", s.DatabaseSize*100/s.Quota, bytes(s.Quota))
	}
	row(w, "Database", size)
	row(w, "Leader changes", number(s.LeaderChanges))
	problem := "none"
	if s.Problem != "" {
		problem = s.Problem
	}
	row(w, "Problem", problem)
}

func (r Recovery) table(w io.Writer, _ time.Time) {
	if r.DryRun {
		_, _ = fmt.Fprintf(w, "The store of node %s would be compacted and defragmented: its database has %s on disk and would have about %s. Nothing was changed (--dry-run).\n",
			r.NodeID, bytes(r.SizeBefore), bytes(r.SizeAfter))
		return
	}
	_, _ = fmt.Fprintf(w, "The store of node %s has room again: its database had %s on disk and has %s.\n", r.NodeID, bytes(r.SizeBefore), bytes(r.SizeAfter))
}
