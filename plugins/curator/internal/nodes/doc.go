// Package nodes serves reeve.cluster.v1.NodeService: what the cores of the cluster's nodes call.
//
// Who a node is comes from its certificate alone (internal/auth); no request can speak for another node. Watch is fed by the cache that all
// watchers share. What a node reports, and its heartbeats, are written straight to the store: any curator takes the next one. Heartbeats that come on a stream are written
// without a read while the cache shows that the node's heartbeat goes by the lease of the last one.
package nodes
