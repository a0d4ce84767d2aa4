// Package node wires the rooms of the core together. Read Run and you have read the whole flow:
//
//	params ──► storage ──► seal            plain calls, in this order, before anything runs
//	                         │
//	   network               ▼
//	      │        membership (Unknown … Home) ◄──► cluster (directory, my node, contact)
//	      │                  │                              │
//	      │                  ▼                              ▼
//	      │              identity                     desired roles (kept on the volume)
//	      │                  │                              │
//	      │                  └───────► roles: reconcile ◄───┘
//	      │                                │ per instance: verify, launch, Ready
//	      ▼                                ▼
//	   report ◄──────────────────────  instances ──► access (consensus) ──► sockets of the roles
//
// Every other arrow is an event.Value that the next room watches; values may flow back, calls never do. What this package owns itself is what
// lies between the rooms: the genesis catalog of a new cluster (genesis.go), the choice of what should run (desired.go), and the status of the
// node as others see it (status.go).
package node
