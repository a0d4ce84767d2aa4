// Package consensus gives a role its part of the cluster's consensus store: an etcd client that sees the keys of the role's
// ConsensusUser and nothing else.
//
// The role declares the ConsensusUser in its manifest and calls Dial. There is no password, token or certificate: the node opens a Unix
// socket for this instance alone, the store asks the kernel who is at the other end of it, and etcd's own permissions confine
// the user to the prefix /reeve/users/<user>/. The Client adds and removes that prefix, so that a role's keys begin at the root; that is
// convenience, and what confines a role is etcd.
//
// A Client works again by itself when the store was restarted. While it is away, calls wait or fail with an error of gRPC's, watches are
// silent and leases run on: give every call a context with a deadline.
//
// The package owns the connections of its clients and watches the host's OpenConsensus. It publishes nothing.
package consensus
