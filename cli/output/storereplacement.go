package output

import (
	"io"
	"time"
)

// StoreReplacement is the document of `reeve store replace`.
type StoreReplacement struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// FormerMember is the ID of the member that goes.
	FormerMember string `json:"former_member"`
	// Waited says whether the command has waited until a new member of the node votes.
	Waited bool `json:"waited"`
}

func (r StoreReplacement) table(w io.Writer, _ time.Time) {
	switch member := "Member " + r.FormerMember + " of the store on node " + r.NodeID; {
	case r.DryRun:
		line(w, member, " would be replaced. Nothing was changed (--dry-run).")
	case r.Waited:
		line(w, member, " is replaced: a new one votes in its place.")
	default:
		line(w, member, " is being replaced by a new one.")
	}
}
