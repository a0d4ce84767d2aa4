package howto_test

import (
	"encoding/json"
	"regexp"
	"testing"
)

// TestScheduledSnapshots follows the page "Scheduled snapshots", in a cluster of one node.
func TestScheduledSnapshots(t *testing.T) {
	r := newReader(t, "docs/how-to/schedule-snapshots.md")
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.firstNode(node)
	r.machines["node"] = node
	r.events["the-key-is-there"] = func() {
		recipient := regexp.MustCompile(`age1[0-9a-z]+`).FindString(r.last.Stdout)
		r.names["age1ql3z…"] = func() string { return recipient }
	}
	name := func() string {
		var listed struct {
			Snapshots []struct {
				Name string `json:"name"`
			} `json:"snapshots"`
		}
		result := r.desk.Run(t, "reeve store snapshot list -o json")
		if err := json.Unmarshal([]byte(result.Stdout), &listed); err != nil || len(listed.Snapshots) == 0 {
			return "there is none yet"
		}
		return listed.Snapshots[0].Name
	}
	r.names["20261128T180000Z-1"] = name
	r.events["there-is-one"] = func() {
		if found, want := node.Run(t, "ls /var/lib/reeve/data/roles/curator/snapshots"), name(); found.Stdout != want+".snapshot\n" {
			t.Errorf("the directory of the page has %s, not %s", found, want)
		}
	}
	r.follow()
}
