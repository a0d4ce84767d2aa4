package devcluster

import (
	"encoding/json"
	"testing"
)

// Event is one of those that `reeve events -o json` shows.
type Event struct {
	Sequence   uint64            `json:"sequence"`
	Severity   string            `json:"severity"`
	Type       string            `json:"type"`
	Message    string            `json:"message"`
	Role       string            `json:"role"`
	InstanceID string            `json:"instance_id"`
	Details    map[string]string `json:"details"`
}

// Events returns the events of a type and a role, the oldest first; an empty type or role is any.
func (c *Cluster) Events(t testing.TB, kind, role string) []Event {
	t.Helper()
	result := c.MustReeve(t, "events", "-o", "json")
	var document struct {
		Events []Event `json:"events"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	var found []Event
	for _, event := range document.Events {
		if (kind == "" || event.Type == kind) && (role == "" || event.Role == role) {
			found = append(found, event)
		}
	}
	return found
}
