// Package auth decides who calls and whether they may.
//
// A caller proves itself by the certificate of its TLS handshake, in one of two ways. An SVID that the cluster CA issued to a node is that node,
// while it is valid and while the node's record pins the very key. A self-signed certificate is whoever the cluster has pinned its key
// for: a node or the owner; so a node whose SVID has expired, however long ago, can still come and ask for a new one. Anything else is
// Unauthenticated, and is told why.
//
// The package owns nothing stored. For every call it reads the cluster's record, its CA and the node's record linearizably: a key that is
// no longer pinned is refused with the next call. It watches and publishes nothing.
//
// What an RPC permits is the option reeve.cluster.v1.permission of its proto file. A Guard that meets an RPC without it, or with a caller that
// this server cannot tell, fails before anything is served.
package auth
