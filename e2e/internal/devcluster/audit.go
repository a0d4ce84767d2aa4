package devcluster

import (
	"encoding/json"
	"testing"
)

// AuditEntry is one of those that `reeve audit -o json` shows.
type AuditEntry struct {
	Sequence   uint64            `json:"sequence"`
	Caller     string            `json:"caller"`
	Kind       string            `json:"kind"`
	Address    string            `json:"address"`
	RPC        string            `json:"rpc"`
	Parameters map[string]string `json:"parameters"`
	Code       string            `json:"code"`
	Reason     string            `json:"reason"`
}

// Audit returns the whole audit log of the cluster, the oldest first. access says as whom it is read; none: as the owner of the dev directory.
func (c *Cluster) Audit(t testing.TB, access ...string) []AuditEntry {
	t.Helper()
	if len(access) == 0 {
		access = []string{"--dir", c.Directory}
	}
	result := c.Run(t, c.Programs.Reeve(), append([]string{"audit", "--limit", "0", "-o", "json"}, access...)...)
	var document struct {
		Entries []AuditEntry `json:"entries"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil || result.Code != 0 {
		t.Fatalf("%v: %s", err, result)
	}
	return document.Entries
}
