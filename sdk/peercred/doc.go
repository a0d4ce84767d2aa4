// Package peercred identifies the peer of a Unix socket by the kernel's SO_PEERCRED, and provides gRPC transport credentials for that. No secret is
// involved: a socket and this check are all the authentication on a node. The package owns no state.
package peercred
