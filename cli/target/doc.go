// Package target finds the cluster that a command is for and connects to it.
//
// There are two ways. Through a dev directory D: the node's own API is at D/run/node.sock, where the kernel says who listens; the node's
// status says where the curators are and which CA to trust; the owner's key is in D/owner.key. Or by the address of a curator, with the CA's
// certificates and the owner's key in files. Either way the cluster API, and another node's own API, are reached over TLS 1.3: the
// server proves itself by the cluster's CA, the caller by a self-signed certificate of the owner key that the cluster pins.
//
// A Target owns the connections that it makes; it reads files and watches nothing. Its errors are fault.Errors.
package target
