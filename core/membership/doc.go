// Package membership takes the node to its cluster and knows whether it is there.
//
// It owns the node's phase in the sealed configuration and the membership state. It watches the capabilities of the node's roles (to form
// the store and to bootstrap the cluster through them), the node's identity (what the cluster gave must be on disk before the node is a
// member) and the contact to the cluster API. It publishes the Status, the Credentials that the bootstrap returned, and Problems.
//
// The way of the first node, each step persisted before the next begins:
//
//	phase forming   the store is formed anew, as often as it takes
//	phase formed    the store exists; from here on it is only ever opened. The cluster is bootstrapped: again after a crash, with the
//	                same answer, since the transaction only creates
//	phase member    for good. Whatever is missing from now on is an error by name, never a reason to begin again
package membership
