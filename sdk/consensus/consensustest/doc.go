// Package consensustest provides a real store for the tests of a role: a one-member etcd in the test's process. Package roletest runs the role: its
// Host.OpenStore connects it to the Store, and the faults of that host, such as Host.LoseStore, come in between.
//
// On a node, etcd confines each role to its own keys. This Store does not: only package consensus keeps a role's Client to them.
//
// The package owns the server and its directory, and removes both at the end of the test.
package consensustest
