package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// snapshots takes snapshots of a cluster's store as an owner (olivia), an operator (alice) and a viewer (victor), and looks at them.
func snapshots(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	key, other := filepath.Join(c.Home, "recovery.key"), filepath.Join(c.Home, "other.key")
	var made struct {
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(reeve(t, c, exitOK, "recovery-key", "new", key, "-o", "json").Stdout), &made); err != nil {
		t.Fatal(err)
	}
	recipient := made.Recipient
	reeve(t, c, exitOK, "recovery-key", "new", other)
	sealed, open := filepath.Join(c.Home, "sealed"), filepath.Join(c.Home, "open")

	if result := reeve(t, c, exitRefused, "store", "snapshot", sealed, "--context", "alice"); !strings.Contains(result.Stderr, "reeve policy set recovery-recipient=") {
		t.Errorf("it does not say how the cluster comes to a recovery key: %s", result)
	}
	reeve(t, c, exitOK, "policy", "set", "recovery-recipient="+recipient, "--context", "olivia")
	reeve(t, c, exitRefused, "store", "snapshot", sealed, "--context", "victor")
	reeve(t, c, exitRefused, "store", "snapshot", sealed, "--unencrypted", "--context", "alice")
	if result := reeve(t, c, exitOK, "store", "snapshot", sealed, "--context", "alice", "-o", "json"); !strings.Contains(result.Stdout, `"recipient": "`+recipient+`"`) {
		t.Errorf("it is not sealed to the recovery key: %s", result)
	}
	reeve(t, c, exitOK, "store", "snapshot", open, "--unencrypted", "--context", "olivia")
	for _, one := range []struct {
		code      int
		want      string
		arguments []string
	}{
		{exitOK, `"checked": "file"`, []string{sealed, "-o", "json"}},
		{exitOK, `"checked": "database"`, []string{sealed, "-o", "json", "--recovery-key", key}},
		{exitOK, `"checked": "database"`, []string{open, "-o", "json"}},
		{exitOK, `"known_as": "context `, []string{open, "-o", "json"}},
		{exitRefused, "is for " + recipient, []string{sealed, "--recovery-key", other}},
	} {
		if result := reeve(t, c, one.code, append([]string{"store", "snapshot", "inspect"}, one.arguments...)...); !strings.Contains(result.Stdout+result.Stderr, one.want) {
			t.Errorf("inspect %v does not say %s: %s", one.arguments, one.want, result)
		}
	}
	left, err := filepath.Glob(filepath.Join(c.NodeDirectory(1), "data", "roles", "consensus", "snapshot*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the member keeps %v, %v", left, err)
	}
}
