// Package identity holds who the node is: its key and ID, its cluster, the cluster's CA and the node's SVID.
//
// It owns the directory identity/ of the volume. It watches the values by which the cluster hands out certificates (the bootstrap of membership, the
// client of the cluster API), saves new ones, and then publishes the Identity.
package identity
