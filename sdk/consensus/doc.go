// Package consensus gives a role its part of the cluster's consensus store: an etcd client that sees only the keys of the role's ConsensusUser.
//
// The role declares the ConsensusUser in its manifest and calls Dial. There is no password, token or certificate: the node opens a Unix socket for
// this instance alone, the store asks the kernel for the peer, and etcd's own permissions confine the user to the prefix /reeve/users/<user>/. The
// Client adds and removes that prefix, so a role's keys begin at the root. That is only convenience: etcd confines the role.
//
// A Client recovers by itself when the store was restarted. While the store is away, calls wait or fail with a gRPC error, watches are silent and
// leases run on: give every call a context with a deadline.
//
// A ConsensusUser has a quota of bytes and leases, granted by the cluster's owner. A role that has used it up gets ErrOverQuota; it can still read
// and delete. Status of the Client's Maintenance answers as if the role had its own store: DbSize is what it uses, DbSizeQuota its quota. A lease
// belongs to its user alone. etcd's client does not notice that, as long as it lets the store choose the ID.
//
// The load of a ConsensusUser is limited too: writes per second, concurrent reads, the number of watches. A call over the limit waits for some
// seconds, and is then refused with gRPC's ResourceExhausted and the limit, and may be retried later; a refused watch ends. The guide for role
// authors has the numbers.
//
// For work that only one instance of a role may do at a time, use an Election. The winner has a Term. The Term's context ends before another instance
// can win, and its Fence rejects writes of an instance that has lost the election without noticing. The lease's time is counted here from before the
// store was asked for it (keeper.go).
//
// Package consensustest has a real store for tests.
//
// The package owns the connections of its clients and watches the host's OpenConsensus. It publishes nothing.
package consensus
