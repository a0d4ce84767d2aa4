// Package auth decides who calls and whether they may.
//
// A caller proves itself by the certificate of its TLS handshake, in one of three ways, or in a fourth to the RPCs that are for newcomers. An SVID that the
// cluster CA issued to a node is that node, while it is valid and while the node's record pins the very key. The certificate of a session, which the CA issued
// at a Login, is that operator or that owner key, while it is valid, while the operator's record is the one for which it was issued, and while the owner key is
// the same. A self-signed certificate is whoever the cluster has pinned its key for: a node, the owner or an operator; so a node whose SVID has expired,
// however long ago, can still come and ask for a new one. An operator's own key is for logging in only. Anything else is Unauthenticated, and is told why. A
// newcomer is whoever holds the key of a self-signed certificate, also a node or the owner: what that key is worth is for the call to find out
// (internal/enrolment).
//
// A node also says which start of its core calls. The one that called last, by its number, is taken for the node; a copy of its disk has a lower number, and of
// two machines with one number the first that calls is the node (Starts). A node that was removed is told so whatever it calls, by the tombstone that names it.
//
// The package owns nothing stored but which starts of nodes are known and refused. For every call of somebody who may be known it reads the cluster's record, its CA and the caller's record
// linearizably, in one go: what is no longer pinned is refused with the next call. Who cannot be known is refused by a snapshot of the cache that has the epoch of a read which began after the
// call: whatever makes somebody known changes the epoch. It watches the snapshots of the cache for the calls that last: the stream of
// an operator who is revoked, of an owner key that is replaced, or of a start of a node after which a later one has called, ends as soon as this curator sees
// it. It publishes nothing.
// A node that sends on a stream is looked at with each message, by the newest snapshot, as it is with a call of its own.
//
// What an RPC permits is the option reeve.cluster.v1.permission of its proto file. A Guard that meets an RPC without it, or with a caller that
// this server cannot tell, fails before anything is served.
package auth
