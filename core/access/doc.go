// Package access decides which role instances of this node may use the consensus store, and tells the store and the instances so.
//
// It owns the directory run/access, with one directory for each running instance whose ConsensusUser is granted: there the role that provides
// reeve.consensus.v1 binds the instance's socket.
//
// It watches the instances, the capabilities and the membership of the node, and derives from them, and from nothing else, the complete set of
// instances that may be open. It gives the set to the provider of the store: when it changes, and anew to every provider and every connection.
// Nothing asks for access and nothing has to be taken back: what is not in the set is closed.
//
//	instances ──┐
//	capabilities├──► set (core start, number) ──► provider: SetAccess ──► sockets
//	membership ─┘         │                              │
//	                      └────────► States ◄── WatchStore (open at which number)
//
// It publishes States, what OpenConsensus answers to each instance, and the status of the store. An instance is told that the store is open only
// after the provider said so of a set that has the instance as it is now.
package access
