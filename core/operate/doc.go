// Package operate does what the operators of a node ask for through the node's own API.
//
// Room tells what a role runs as, restarts and debugs roles, and asks the role that provides the store or the cluster API for what only that can do. Volume
// handles the volume and its keys, and records what was done with them.
//
// It watches the roles that should run and those that do, the capabilities, the store, and the cluster's policy, by which it ends the debugging of roles. It
// publishes Sealing: that somebody has the node sealed. Whoever runs the node answers it.
package operate
