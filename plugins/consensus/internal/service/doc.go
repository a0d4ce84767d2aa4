// Package service is the consensus role: it serves reeve.consensus.v1 to the core of the node and wires the store, its door and its reconciler
// together.
//
// Run waits for the core's Form, which says whose store to run, and then serves until the role is stopped:
//
//	Form ──► store (etcd, status) ──► reconcile (users, on the leader)
//	                   │                   │
//	                   ▼                   ▼ status.Users
//	SetAccess ─────► door (sockets) ◄──────┘
//	                   │
//	                   ▼
//	WatchStore ◄── status + what became of each instance
//
// Beside that it answers Recover and CheckHealth by the store, and shows etcd's metrics to the core and on a socket of its own.
package service
