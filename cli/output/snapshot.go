package output

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/reeveproject/reeve/proto/snapshot"
)

// Snapshot is the document of `reeve store snapshot` and `reeve store snapshot inspect`.
type Snapshot struct {
	File string `json:"file"`
	// Size is that of the file, in bytes.
	Size   int64 `json:"size"`
	Format int   `json:"format"`
	snapshot.Manifest
	// SignedBy is the hash of the public key of the CA that signed it ("sha256:…"). KnownAs is by what it is known to be the cluster's, such as "context prod"; empty: it is not known.
	SignedBy string `json:"signed_by"`
	KnownAs  string `json:"known_as"`
	// Checked is what was compared with the manifest: "file", the file as it is, or "database", also what is in it; empty: it was just taken.
	Checked string `json:"checked"`
}

// NewSnapshot makes the document of a file with a header.
func NewSnapshot(file string, header *snapshot.Header) Snapshot {
	return Snapshot{
		File: file, Size: header.Size(), Format: snapshot.Format, Manifest: *header.Manifest,
		SignedBy: snapshot.ShowKey(header.Authority),
	}
}

// Size is a number of bytes for people.
func Size(bytes int64) string { return formatSize(bytes) }

func (s Snapshot) table(w io.Writer, now time.Time) {
	row(w, "File", fmt.Sprintf("%s, %s", s.File, formatSize(s.Size)))
	row(w, "Cluster", s.ClusterID)
	row(w, "Revision", number(s.Revision))
	row(w, "Taken", fmt.Sprintf("%s (%s)", s.Time.UTC().Format(time.RFC3339), ago(&s.Time, now)))
	row(w, "By", fmt.Sprintf("member %s of node %s", s.MemberID, s.NodeID))
	row(w, "Database", fmt.Sprintf("%s, sha256:%s", formatSize(s.DatabaseSize), s.DatabaseSHA256))
	row(w, "Format", fmt.Sprintf("%d, of Reeve %s, etcd's storage %s", s.Format, s.ReeveVersion, cmp.Or(s.StorageVersion, "unknown")))
	row(w, "Sealed to", cmp.Or(s.Recipient, "nobody: it is NOT ENCRYPTED, and has every secret of the cluster"))
	if s.Rehearsal != nil {
		row(w, "Rehearsed", fmt.Sprintf("%d keys of %d users came out of it when it was restored, as they were in the store", s.Rehearsal.Keys, len(s.Rehearsal.Users)))
	}
	known := "which is not known here: compare it with the cluster's (`reeve ca`), or give --ca"
	if s.KnownAs != "" {
		known = "known by " + s.KnownAs
	} else if s.Checked == "" {
		known = "the cluster's CA"
	}
	row(w, "Signed by", s.SignedBy+", "+known)
	checked := map[string]string{
		"": "the file, while it was written", "file": "the file is complete and as it was signed; give --recovery-key to check the database in it",
		"database": "the file and the database in it are complete and as they were signed",
	}[s.Checked]
	row(w, "Checked", checked)
}
