package howto_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRotateTheCA follows the page "Rotate the CA", in a cluster of two nodes.
func TestRotateTheCA(t *testing.T) {
	r := newReader(t, "docs/how-to/rotate-the-ca.md")
	first, second := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "second", "192.0.2.20")
	r.firstNode(first)
	r.join("", second)
	r.machines["node"] = first

	r.events["nodes-trust-both"] = func() {
		if authorities := r.authorities(); authorities != 2 {
			t.Errorf("the cluster has %d CAs between the first and the second step", authorities)
		}
		if count := strings.Count(r.desk.Must(t, "cat ca.pem").Stdout, "BEGIN CERTIFICATE"); count != 2 {
			t.Errorf("%d certificates were brought over", count)
		}
		eventually.True(t, patience, "all nodes trust both CAs", func() (bool, string) {
			result := r.desk.Run(t, "reeve cert rotate activate --dry-run")
			return result.Code == 0, result.String()
		})
	}
	r.events["a-node-is-off"] = func() {
		if authorities := r.authorities(); authorities != 1 {
			t.Errorf("the cluster has %d CAs after the third step", authorities)
		}
		// In the next rotation a node is off from before the first step.
		second.PowerOff(t)
		r.desk.Must(t, "reeve cert rotate prepare")
		if result := r.desk.Run(t, "reeve cert rotate activate"); result.Code == 0 || !strings.Contains(result.Terminal, "reeve-") {
			t.Errorf("activate goes on without a node: %s", result)
		}
	}
	r.follow()
	if !strings.Contains(r.last.Stdout+r.last.Terminal, "reeve-") {
		t.Errorf("the node that is left out is not named: %s", r.last)
	}
}

// authorities is how many CAs the cluster has.
func (r *reader) authorities() int {
	r.t.Helper()
	return strings.Count(r.desk.Must(r.t, "reeve cert list").Stdout, "CN=Reeve cluster CA")
}
