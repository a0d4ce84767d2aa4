// Package store is a consensus store for a run of the conformance suite: a real etcd in this process, with authorization. It confines each
// ConsensusUser to its prefix like a cluster's store, counts the user's requests, and records what etcd refused. It is a separate package so that
// only tests of a plugin with a ConsensusUser link etcd's server.
//
// A Store owns a directory under /tmp and removes it when it is closed.
package store
