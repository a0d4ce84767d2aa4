// Package server runs a curator: it puts the other packages together and serves the cluster API.
//
//	store ──► cache ──► is there a cluster? ──► own SVID ──► listen ──► endpoint, Ready
//	  ▲                       ▲                                │
//	  └── bootstrap ──────────┘                                └─► count ► audit ► recover ► errors ► stop ► who, may it? ► what it holds, its turn ► NodeService, ManagementService
//
// Where the configured address cannot be listened on, it serves on loopback, so that the configuration can be set right through it, and serves the
// configured address too once that can be had.
//
// It owns the listeners, the gRPC server and the goroutines of the cache, of the audit log, of the probe and of the entrance, and ends all of them before
// Run returns; the audit log after the last call. It watches the cache and the store's health. It publishes the endpoint and the state of the role on its
// host: Ready, or Degraded while the configured address is not served, or while the store does not answer; the API then answers Unavailable, and is well
// again by itself. Health says whether the process does what it should, whatever the store does.
package server
