package howto_test

import "testing"

// TestInstallANode follows the page "Install a node" from the installed machine on; the packages themselves are those of e2e/install.
func TestInstallANode(t *testing.T) {
	r := newReader(t, "docs/how-to/install-a-node.md")
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.machines["node"] = node
	r.events["files-are-brought"] = func() {
		r.desk.Must(t, "scp root@192.0.2.10:ca.pem ca.pem && scp root@192.0.2.10:owner.key owner.key && ssh root@192.0.2.10 'rm owner.key'")
	}
	r.follow()
	r.desk.Must(t, "reeve node list")
}
