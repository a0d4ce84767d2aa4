// Package nodeapi serves a node's own API, reeve.node.v1: what the people who operate a node can ask of it, also while the cluster does not
// answer.
//
// It owns the local socket and the TCP port. On the socket, whose file only the core's user may open, the kernel says who calls; over TCP
// only the holder of the cluster's owner key gets through the TLS handshake, and nobody before the node has an SVID to prove itself
// with. Which of the two may call what is declared with each RPC: a server with an RPC that declares nothing does not start.
//
// It watches the node's status and identity, and publishes nothing.
package nodeapi
