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
// A ConsensusUser may have so many bytes and leases in the store, as the cluster's owner grants it. A role that has used them up is told ErrOverQuota; it
// can still read and delete. Status of the Client's Maintenance answers as if the role had a store of its own: DbSize is what it has, DbSizeQuota what it may
// have. A lease is its user's alone: etcd's client does not notice, as long as it lets the store choose the ID.
//
// What a ConsensusUser may have under way is bounded, too: what it writes a second, what it reads at once, how many watches it has. What is too much for the moment waits for some seconds. Then
// it is refused with gRPC's ResourceExhausted and the bound that was met, and may be tried again later; a watch ends with that. The guide for those who write roles has the numbers.
//
// What only one instance of a role is to do at a time is what an Election is for: an instance that has won it has a Term, whose context ends before another one can win, and whose Fence
// keeps what it writes out of the store when it has lost the election without knowing. A lease is counted here from before the store was asked for it (keeper.go).
//
// Package consensustest has a real store for tests.
//
// The package owns the connections of its clients and watches the host's OpenConsensus. It publishes nothing.
package consensus
