// Package roletest runs a plugin in a test over the real protocol. It starts the executable with go-plugin's handshake, like a node's core, and
// serves a host on a real Unix socket. Host is that host, with values, files, a host name and a machine ID that the test sets and that are not the
// machine's own. Process is the started plugin. A role is told the grants that the test has set before it starts the role.
//
// Cluster is a set of hosts with one directory and one CA. Roles on them that listen and dial (role.Host's Listen and Dial) find each other as in a
// real cluster. Instance is the role's side of a host without a plugin, in the test itself.
//
// Faults of a node: Host.LoseStore and RevokeStore take away the consensus store, which Host.OpenStore forwards (package sdk/consensus/consensustest
// has a real one). Host.Split cuts the node off. Host.Stop is the death of its core, and Process.RestartCore that and the adoption by the next core.
// Cluster.Remove and Withdraw act as the cluster's owner. FindStore, OpenStore, Rejoin and Serve undo them.
//
// The executable may be the test's own binary, whose TestMain calls role.Serve if an environment variable of the test says so: LaunchTest.
//
// The package owns the directories and processes that it makes, and ends them with the test.
package roletest
