// Package restore opens the snapshot that a node is restored of: it checks all of the file before anything of the node is made, and sends its database to the role that provides the consensus store.
//
// It owns nothing on the disk, and watches and publishes nothing. The recovery key stays in memory.
package restore
