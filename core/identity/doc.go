// Package identity holds who the node is: its key and ID, its cluster, the cluster's CA and the node's SVID.
//
// It owns the directory identity/ of the volume, watches the values on which the cluster hands out certificates (membership's bootstrap,
// the client of the cluster API), keeps what is new before anybody uses it, and publishes the Identity.
package identity
