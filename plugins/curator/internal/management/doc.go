// Package management serves reeve.cluster.v1.ManagementService: what operators call.
//
// Every read is linearizable, and every write is one transaction of internal/store under the rules of internal/rules: it is decided from the
// whole of the cluster's records, and made only if none of them has changed. A call that changes nothing writes nothing, so every call can be
// repeated when its answer was lost. WatchNode is fed by the cache. A dry run decides from the same records, answers as if it were done, and writes
// nothing but its entry in the audit log.
//
// A write is made for its call (internal/audit): the entry of the call is part of the transaction. It is also made only while whoever calls is still who
// was let in: an operator who is revoked in this very moment changes nothing any more.
//
// A plugin's record is made by internal/catalog, and held against the rules of the whole cluster before it is written. What nodes report decides nothing
// but to which of two approved versions they go back.
//
// Login begins or renews a session: internal/auth says what its certificates are worth.
//
// A role is a name, a configuration and a generation. The generation of an assignment is that of the node's record at the time of the
// change, so that a role that is taken away and given back is never mistaken for the one before.
//
// A role by which a node has a member of the consensus store does not go at once: its assignment is leaving until the store has let the member go, and internal/steward takes
// it out then. A node that is decommissioned leaves in the same way, with all of its roles. One that is deleted goes at once, which is for nodes that are dead. Both
// leave a tombstone: the record of a node stays, so that the node can be told.
//
// The cluster CA is rotated in three steps (RotateCA), of which none is taken before every member has come as far as it needs: a new one is trusted, then it
// signs, then the old one is trusted no more.
package management
