// Package peercred tells who is at the other end of a Unix socket, by the kernel's word (SO_PEERCRED), and turns it into gRPC
// transport credentials. No secret is involved: a socket and this check are the whole of authentication on a node. It owns no state.
package peercred
