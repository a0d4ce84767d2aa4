// Package consensustest gives the tests of a role that uses the consensus store a real one: etcd, of one member, in the test's process. Where the role runs is package
// roletest's: Host.OpenStore lets it find the Store, and the faults of that host, such as Host.LoseStore, come between the two.
//
// On a node etcd confines each role to its own keys, and this Store does not: package consensus keeps a role's Client to them.
//
// The package owns the server and its directory, and ends them with the test.
package consensustest
