// Package roletest runs a plugin in a test, over the real protocol: the executable is launched with go-plugin's handshake as a node's core
// launches it, and finds a host at the other end of a real Unix socket. Host is that host, with values, files, a host
// name and a machine ID that the test sets and that are not the machine's own; Process is the launched plugin. A role is told of the grants that it has
// by what the test has set before it starts the role.
//
// Cluster is several hosts with one directory and one CA: roles on them that listen and dial (role.Host's Listen and Dial) find each other as on the nodes
// of a cluster. Instance is the role's side of a host without a plugin, in the test itself.
//
// The faults of a node: Host.LoseStore and RevokeStore take the consensus store away, which Host.OpenStore passes on (package sdk/consensus/consensustest has a real one); Host.Split
// cuts the node off; Host.Stop is the death of its core, and Process.RestartCore that and the adoption by the next one; Cluster.Remove and Withdraw are what the cluster's owner does. What
// they began, FindStore, OpenStore, Rejoin and Serve end.
//
// The executable may be the test's own binary, whose TestMain calls role.Serve if an environment variable of the test's says so: LaunchTest.
//
// The package owns the directories and processes that it makes, and ends them with the test.
package roletest
