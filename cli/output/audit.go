package output

import (
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Audit is the document of `reeve audit`.
type Audit struct {
	// Entries are the oldest first.
	Entries []*clusterv1.AuditEntry `json:"entries"`
	// More says whether the cluster keeps older ones that were not asked for.
	More bool `json:"more"`
}

func (a Audit) table(w io.Writer, _ time.Time) {
	row(w, "TIME", "CALLER", "RPC", "PARAMETERS", "RESULT", "ADDRESS")
	for _, entry := range a.Entries {
		at := ""
		if when := moment(entry.GetTime()); when != nil {
			at = when.Format(time.RFC3339)
		}
		row(w, at, entry.GetCaller(), entry.GetRpc(), strings.TrimPrefix(parameters(entry.GetParameters()), " "), auditResult(entry), entry.GetAddress())
	}
}

// auditResult is how a call ended, in a cell.
func auditResult(e *clusterv1.AuditEntry) string {
	result := e.GetCode()
	if e.GetReason() != "" {
		result += ": " + e.GetReason()
	}
	if e.GetSuppressed() > 0 {
		result += " (and " + number(e.GetSuppressed()) + " more like it)"
	}
	return result
}
