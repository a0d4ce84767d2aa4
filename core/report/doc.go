// Package report puts together what others see of the node.
//
// It watches the node's addresses, instances, membership, identity, curators, store and volume, and what the cluster says. It publishes the report to
// the cluster, the answer of the node's own API, the directory that roles watch, and whom the cluster lets in: for the node's own API, and for roles.
//
// Locked is the answer of a node whose volume is not open.
package report
