package howto_test

import "testing"

// TestReadmeOfHostsfile follows the examples of the plugin hostsfile: one of them names a machine.
func TestReadmeOfHostsfile(t *testing.T) {
	r := newReader(t, "plugins/hostsfile/README.md")
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.firstNode(node)
	r.calls("NODE", node)
	// A machine that has none, as the example says.
	node.Must(t, ": > /etc/machine-id")
	// What a node is made with is granted this file.
	r.names["/srv/resolver/hosts"] = func() string { return "/etc/hosts" }
	r.follow()
}

// TestReadmeOfCurator gives a curator another address, by the cluster API that it serves itself.
func TestReadmeOfCurator(t *testing.T) {
	r := newReader(t, "plugins/curator/README.md")
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.firstNode(node)
	r.calls("NODE", node)
	r.names["192.0.2.1:7400"] = func() string { return "192.0.2.10:7400" }
	r.follow()
	r.home(node)
	r.desk.Must(t, "reeve login --name moved --address 192.0.2.10:7400 --ca ca.pem --key owner.key && reeve node list --context moved")
}
