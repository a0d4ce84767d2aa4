// Package catalog knows what should run on the node, and by which plugins.
//
// An Assignment is the roles of the node and the catalog entries of their plugins. It is kept on the volume, so that roles start before the cluster is reached.
// Prepare returns the first one: what is kept, or the genesis of a new cluster, made of the built-in plugins (genesis.go).
//
// Chooser takes the newest assignment from the cluster, keeps it, and publishes what should run by it (desired.go), with the version of each plugin to go back to
// (versions.go). It watches the membership, the directory, and what fills the disk.
//
// VerifyAhead verifies executables while their roles still wait (ahead.go). Collector removes the executables that no plugin of the node needs any more
// (executables.go), and Wiper what a role left that the cluster took from the node for good (wipe.go). FollowStore publishes whether the node has left the
// consensus store (store.go).
package catalog
