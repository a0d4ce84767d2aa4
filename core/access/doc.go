// Package access decides which role instances of this node may use the consensus store, and tells the store and the instances.
//
// It owns the file by which every start of the core is later than the one before (start.go), and the directory run/access, with a directory for each
// running instance whose ConsensusUser is granted. There the role that provides reeve.consensus.v1 binds the instance's socket.
//
// It watches the node's instances, capabilities and membership, and derives from them alone the complete set of instances that have access. It sends
// the set to the store's provider when the set changes, and again to every new provider and on every new connection. Nobody requests access and
// nobody revokes it: an instance that is not in the set has none.
//
//	instances ──┐
//	capabilities├──► set (core start, number) ──► provider: SetAccess ──► sockets
//	membership ─┘         │                              │
//	                      └────────► States ◄── WatchStore (open at which number)
//
// It publishes States, the answers of OpenConsensus to each instance, and the status of the store. An instance is told that the store is open only
// after the provider has confirmed a set with the instance's present entry.
package access
