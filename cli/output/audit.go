package output

import (
	"io"
	"strconv"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

var _ Document = Audit{}

// Audit is the document of `reeve audit`.
type Audit struct {
	// Entries are the oldest first.
	Entries []AuditEntry `json:"entries"`
	// More says whether the cluster keeps older ones that were not asked for.
	More bool `json:"more"`
}

// AuditEntry is one call.
type AuditEntry struct {
	Sequence uint64     `json:"sequence"`
	Time     *time.Time `json:"time"`
	// Caller is "owner", "operator alice", "core of node reeve-…", or "unknown".
	Caller string `json:"caller"`
	// Kind is as what the caller was let in: "owner", "operator", "viewer", "node", "core"; empty: it was not.
	Kind       string            `json:"kind"`
	Address    string            `json:"address"`
	RPC        string            `json:"rpc"`
	Parameters map[string]string `json:"parameters"`
	// Code is the gRPC code of the answer, such as "OK".
	Code   string `json:"code"`
	Reason string `json:"reason"`
	// NodeID is the node whose curator took the call.
	NodeID string `json:"node_id"`
	// Suppressed is how many like it were left out since the entry before.
	Suppressed uint64 `json:"suppressed"`
}

// NewAuditEntry makes the document of an entry of the audit log.
func NewAuditEntry(e *clusterv1.AuditEntry) AuditEntry {
	return AuditEntry{
		Sequence: e.GetSequence(), Time: moment(e.GetTime()), Caller: e.GetCaller(), Kind: Kind(e.GetKind()), Address: e.GetAddress(),
		RPC: e.GetRpc(), Parameters: dictionary(e.GetParameters()), Code: e.GetCode(), Reason: e.GetReason(), NodeID: e.GetNodeId(),
		Suppressed: e.GetSuppressed(),
	}
}

func (a Audit) table(w io.Writer, _ time.Time) {
	row(w, "TIME", "CALLER", "RPC", "PARAMETERS", "RESULT", "ADDRESS")
	for _, entry := range a.Entries {
		at := ""
		if entry.Time != nil {
			at = entry.Time.UTC().Format(time.RFC3339)
		}
		row(w, at, entry.Caller, entry.RPC, strings.TrimPrefix(parameters(entry.Parameters), " "), entry.result(), entry.Address)
	}
}

// result is how the call ended, in a cell.
func (e AuditEntry) result() string {
	result := e.Code
	if e.Reason != "" {
		result += ": " + e.Reason
	}
	if e.Suppressed > 0 {
		result += " (and " + strconv.FormatUint(e.Suppressed, 10) + " more like it)"
	}
	return result
}
