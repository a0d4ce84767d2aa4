// Package archive serves the scheduled snapshots of this node to the role archive of the same node, which copies them to where the node's end does not reach them.
//
// The curator listens for it only while the cluster has assigned that role to the node. By the role's SVID nobody else gets in. What it gets is sealed to the recovery key; it
// can neither take nor remove a snapshot.
package archive
