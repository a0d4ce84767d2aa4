// Package node wires the rooms of the core together. Read node.run (node.go) and you have read the life of a node:
//
//	Run ──► directories ──► open the volume ──► the whole node ──┬─► stopped: close the volume, end
//	                         ▲                                   ├─► left: the roles run on, on the open volume
//	                         │                                   └─► sealed: close the volume, prove it ─┐
//	                         └───────────────────────────────────────────────────────────────────────────┘
//
// The API that answers while the volume is not open is in locked.go. Read assemble (whole.go) and run (rooms.go) and you have read the whole node, and the
// order in which it ends: roles, rooms, the API's calls that read the volume, the journal, the volume, and then the call that asked for it.
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
// Every other arrow is an event.Value that the next room watches. Values may flow back. A room calls another only to ask an earlier room for what only that one
// may do: docs/architecture.md lists these requests. This package owns nothing but the order in which rooms are made, run and ended.
package node
