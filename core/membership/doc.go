// Package membership takes the node to its cluster and knows whether it is there.
//
// It owns the node's phase in the sealed configuration, whether the node has a member of the consensus store, and the membership state. It watches the capabilities
// of the node's roles (to form the store and to bootstrap the cluster through them), the node's identity (what the cluster gave must be on disk before the node is
// a member), the contact to the cluster API, whether the node has left the store, and whether the cluster has removed it. It publishes the Status, the Credentials that the bootstrap or the
// enrolment returned, and Problems.
//
// The way of the first node, each step persisted before the next begins:
//
//	phase forming   the store is formed anew, as often as it takes
//	phase formed    the store exists; from here on it is only ever opened. The cluster is bootstrapped: again after a crash, with the
//	                same answer, since the transaction only creates
//	phase member    for good. Whatever is missing from now on is an error by name, never a reason to begin again
//
// The way of a later one:
//
//	phase registering  the cluster is asked to make a record of the node, by its ticket: again after a crash, with the same answer
//	phase registered   the ticket is forgotten. The node waits for its approval (Foreign)
//	phase committing   the cluster is given its half of the key of the volume (Trusted): again after a crash, with the same answer, which is kept whole
//	phase member       that half is forgotten. The store is joined when the cluster wants the node to have a member of it
//
// A node that the cluster has removed keeps that first. It is Disowning from then on, and for good.
package membership
