// Package bootstrap makes a cluster: it serves reeve.cluster.v1.BootstrapService on the plugin connection, to the core of the first node.
//
// It owns the first transaction of a store, which creates everything or nothing. It is safe to call at any time and any number of times, from any
// number of callers: whoever comes second with the same cluster ID and keys gets what the first one made, and anyone else is told what
// differs. It also puts another owner key in the place of one that was lost, for root of a node of the trusted base, and says so in the audit log. It
// watches and publishes nothing: that there is a cluster now is seen by everybody's watch of the store.
package bootstrap
