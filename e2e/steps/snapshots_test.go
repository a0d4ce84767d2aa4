package steps_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// snapshots has a scheduled snapshot taken, until everybody was killed at every step of that: it is asked for once, taken again and again, and good in the end.
func (s *stepping) snapshots() {
	defer s.part("a scheduled snapshot")()
	t, c := s.t, s.c
	voters := []int{1, 2, 3}
	recovery := recoveryKey(t, c)
	s.insist("the policy names a recovery key", func() (bool, string) {
		result := c.Reeve(t, "policy", "show", "-o", "json")
		return strings.Contains(result.Stdout, recovery), result.String()
	}, "policy", "set", "recovery-recipient="+recovery)
	s.consensus.add(voters, around("begin-rehearsal", "rehearse")...)
	s.curator.add(voters, around("ask-snapshot", "store-snapshot")...)
	s.insist("snapshots are taken by schedule", func() (bool, string) {
		result := c.Reeve(t, "policy", "show", "-o", "json")
		return strings.Contains(result.Stdout, `"interval_seconds": "86400"`) || strings.Contains(result.Stdout, `"interval_seconds": 86400`), result.String()
	}, "policy", "set", "snapshots=interval=24h,keep=2")
	s.insist("there is a good one", func() (bool, string) {
		result := c.Reeve(t, "store", "snapshot", "list", "-o", "json")
		return result.Code == 0 && strings.Contains(result.Stdout, `"rehearsed_keys"`) &&
			!slices.ContainsFunc(slices.Concat(s.curator.missing(), s.consensus.missing()), func(point string) bool {
				return strings.Contains(point, "snapshot") || strings.Contains(point, "rehears")
			}), result.String()
	})
	result := c.MustReeve(t, "store", "snapshot", "list", "-o", "json")
	if strings.Contains(result.Stdout, `"reason"`) || strings.Count(result.Stdout, `"rehearsed_keys"`) != 1 {
		t.Errorf("it is not the one that was asked for: %s", result)
	}
}

// recoveryKey makes a recovery key, and returns its public half.
func recoveryKey(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	var made struct {
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(c.MustReeve(t, "recovery-key", "new", filepath.Join(c.Home, "steps-recovery.key"), "-o", "json").Stdout), &made); err != nil {
		t.Fatal(err)
	}
	return made.Recipient
}
