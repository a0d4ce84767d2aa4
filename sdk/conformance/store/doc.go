// Package store is the consensus store of a run of the conformance suite: a real etcd in this process, with authorization on. It confines each ConsensusUser to its prefix as a
// cluster's store does, counts what a user asks of it, and writes down what etcd refused. It is a package of its own, so that etcd's server comes only with a test of
// a plugin that has a ConsensusUser.
//
// A Store owns a directory under /tmp, which is gone when it is closed.
package store
