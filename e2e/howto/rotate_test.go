package howto_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// TestRotateTheCA follows the page "Rotate the CA", in a cluster of two nodes.
func TestRotateTheCA(t *testing.T) {
	r := newReader(t, "docs/how-to/rotate-the-ca.md")
	first, second, waiting := r.lab.Machine(t, "first", "192.0.2.10"), r.lab.Machine(t, "second", "192.0.2.20"), r.lab.Machine(t, "waiting", "192.0.2.30")
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
		r.desk.Must(t, "ssh root@192.0.2.10 reeve ca > old.pem")
		r.calls("reeve-6f1c", second)
		_ = r.names["reeve-6f1c"]()
		// And a machine waits for approval.
		r.desk.Must(t, "reeve ticket create --output-file ticket && scp ticket root@192.0.2.30:ticket && rm ticket")
		waiting.Must(t, "reeve init --join ticket && rm ticket && systemctl enable --now reeved")
		r.in(waiting, "Foreign")
		r.machines["waiting"] = waiting
		second.PowerOff(t)
		r.desk.Must(t, "reeve cert rotate prepare")
		eventually.True(t, patience, "activate waits for the node that is off, and no longer for the first", func() (bool, string) {
			result := r.desk.Run(t, "reeve cert rotate activate")
			if result.Code == 0 {
				t.Fatalf("activate goes on without a node: %s", result)
			}
			return strings.Contains(result.Terminal, r.names["reeve-6f1c"]()) && !strings.Contains(result.Terminal, r.id(first)), result.String()
		})
	}
	r.events["left-out"] = func() {
		if !strings.Contains(r.last.Stdout, "Left out by this step:\n  node "+r.names["reeve-6f1c"]()) {
			t.Errorf("the node that is left out is not named: %s", r.last)
		}
		if !strings.Contains(r.last.Stdout, "machine "+r.id(waiting)+", which is no member yet") {
			t.Errorf("the machine that is left out is not named: %s", r.last)
		}
		first.Must(t, "reeve ca --socket /run/reeve/node.sock > both.pem")
		r.desk.Must(t, "reeve cert rotate activate --force && scp root@192.0.2.10:both.pem ca.pem && reeve login --name lab --address 192.0.2.10:7443 --ca ca.pem --key owner.key && "+
			"reeve cert rotate retire --force")
		// It hears of its approval on the stream that it had, and comes no further.
		r.desk.Must(t, "reeve node approve "+r.id(waiting)+" --yes")
		r.awaits(waiting, "Trusted", "the cluster has a new CA since")
		second.PowerOn(t)
		r.machines["out"] = second
		if result := r.desk.Run(t, "reeve node list --address 192.0.2.10:7443 --ca old.pem --owner-key owner.key"); result.Code == 0 || !strings.Contains(result.Terminal, "the cluster has a new CA since") {
			t.Errorf("who knows the CA of before is told: %s", result)
		}
	}
	r.events["it-is-back"] = func() {
		r.in(second, "Foreign")
		r.desk.Must(t, "reeve node approve "+r.id(second)+" --yes")
		r.home(second)
	}
	r.events["it-goes-on-waiting"] = func() {
		r.home(waiting)
	}
	r.follow()
}

// authorities is how many CAs the cluster has.
func (r *reader) authorities() int {
	r.t.Helper()
	return strings.Count(r.desk.Must(r.t, "reeve cert list").Stdout, "CN=Reeve cluster CA")
}
