// Package node wires the rooms of the core together. Read node.run (node.go) and you have read the life of a node:
//
//	Run ──► directories ──► open the volume ──► the whole node ──┬─► stopped: close the volume, end
//	                         ▲                                   ├─► left: the roles run on, on the open volume
//	                         │                                   └─► sealed: close the volume, prove it ─┐
//	                         └───────────────────────────────────────────────────────────────────────────┘
//
// The API that answers while the volume is not open is in locked.go. Read assemble (whole.go) and run (rooms.go) and you have read the whole node, and in which
// order it ends: roles, rooms, what the API reads on the volume, the journal, the volume, and then the call that asked for it.
//
//	params ──► storage ──► unseal ◄──────── cluster (the policy: which sources of the CUK are allowed)
//	                         │
//	   network               ▼
//	      │        membership (Unknown … Home) ◄──► cluster (directory, my node, contact)
//	      │                  │                              │
//	      │                  ▼                              ▼
//	      │              identity                     catalog: desired roles
//	      │                  │                              │
//	      │                  └───────► roles: reconcile ◄───┘
//	      │                                │ per instance: verify, launch, Ready
//	      ▼                                ▼
//	   report ◄──────────────────────  instances ──► access (consensus) ──► sockets of the roles
//
// Every other arrow is an event.Value that the next room watches; values may flow back, calls never do. What this package owns itself is what
// lies between the rooms: the status of the node as others see it (status.go), and what its own API does through the roles (operate.go).
package node
