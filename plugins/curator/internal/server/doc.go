// Package server runs a curator: it puts the other packages together and serves the cluster API.
//
//	store ──► cache ──► is there a cluster? ──► own SVID ──► listen ──► endpoint, Ready
//	  ▲                       ▲                                │
//	  └── bootstrap ──────────┘                                └─► count ► audit ► recover ► errors ► stop ► who, may it? ► NodeService, ManagementService
//
// It owns the listener, the gRPC server and the goroutines of the cache, of the audit log and of the probe, and ends all of them before Run returns; the
// audit log after the last call. It watches the
// cache and the store's health. It publishes the endpoint and the state of the role on its host: Ready, or Degraded while the store does not
// answer; the API then answers Unavailable, and is well again by itself. Health says whether the process does what it should, whatever the store does.
package server
