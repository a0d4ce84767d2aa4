// Package nodeapi serves a node's own API, reeve.node.v1: what the people who operate a node can ask of it, also while the cluster does not
// answer.
//
// It owns the local socket and the TCP port. On the socket, whose file only the core's user may open, the kernel says who calls. Over TCP, where nobody is
// answered before the node has an SVID to prove itself with, a caller has a session, whose certificate the cluster's CA has issued, or shows a self-signed
// certificate of the owner key, or of the key of a node of the cluster, which may ask where curators are and nothing else. Who holds a session is looked up with
// every call, among the owner and the operators as the cluster last named them: who was revoked is refused with the next call, and streams that are open end. The
// handshake refuses those of whom nothing is known; a session that has ended gets through it, so that the answer can say what to do.
//
// Which caller may call what is declared with each RPC. A server does not start with an RPC that declares nothing, or somebody whom a node cannot
// tell. Calls of RPCs that are audited are recorded as events of type Call, refused ones only so often that they cannot fill the journal.
//
// Logs are followed in their files: over restarts of the role, and over their being put away and emptied. A client that is slower than its role is held up,
// not buffered for, and is told where something is missing that the files no longer have.
//
// What a client over TCP has the core hold is counted and bounded for all of its connections together (sdk/held): requests that are not complete, calls that are under way, and answers that it does not read.
//
// It watches the node's status, its identity, and the cluster's operators and directory, reads the journal of events, and publishes nothing.
package nodeapi
