// Package store runs the local member of the consensus store: an embedded etcd whose authorization is always on and which has no listener for
// clients of its own.
//
// It owns the role's data directory: the marker, which says whose store it is and how far its making got, and etcd's files. It publishes
// Status. It keeps a part of the store's space for the cluster user (Admit, in space.go), bounds how fast users write and how much history and log
// that leaves (history.go, recent.go, log.go), makes room in a store that is full (room.go; on request recover.go), and feels whether etcd still moves
// (health.go). Who may talk to the store is decided elsewhere (package door serves it, package reconcile keeps its users); this package has the only
// way to act as etcd's root: in process, by a context, without any certificate or password.
package store
