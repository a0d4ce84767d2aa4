// Package scheduled has snapshots of the store taken by the schedule of the policy.
//
// The elected curator asks for one when it is due, by a record that names the node (Next). That node's curator has its own node's member take and rehearse it, reads the cluster's records in it, signs it,
// and keeps it in its data directory (Run). What is in the directory is what there is: the record of what a node has is made from it. Whether one is due follows from the records alone, so a
// curator that is elected later neither leaves one out nor takes one twice.
package scheduled
