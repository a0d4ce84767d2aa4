// Package target finds the cluster that a command is for and connects to it, as somebody.
//
// The ways are: a dev directory D, where the node's own API is at D/run/node.sock and the owner's key in D/owner.key; the local socket of a node; the
// address of a curator, with the CA's certificates and a key in files; or a context, which knows all of that from an earlier login. On a socket the
// kernel says who listens, and the node's status says where the curators are and which CA to trust; a context trusts the CA with which it was made. The
// cluster API, and the own API of another node, are reached over TLS 1.3: the server proves itself by the cluster's CA, the caller by the certificate of
// its session, or by a self-signed certificate of the key that the cluster pins.
//
// A session's certificate is renewed by whatever command finds it past half of its life; of several processes one asks for it, under the lock of the
// context, and the others go on with what they have. A stream that would outlive its certificate ends with ErrRenewal, to be begun anew. Where the
// curators of a context do not answer, its nodes are asked where they are now; what the answers of the cluster say of addresses is kept in the context
// when the Target is closed.
//
// A Target owns the connections that it makes. It reads files, writes contexts by package contexts, and watches nothing by itself. Its errors are
// fault.Errors.
package target
