// Package hostapi serves the host protocol (reeve.host.v1) to each role instance, on a Unix socket of its own.
//
// The socket says who calls: it lies in a directory of the core that only the instance's group may search, and the kernel must name the instance's
// user ID as the peer's. Where instances share a user, the peer must be in the instance's process group. The remit says what the caller may do: every
// RPC declares in its proto option who may call it, and the server does not start with an RPC that declares nothing.
//
// Roles are untrusted. The size of messages and the number of connections and streams are limited, a peer that stops answering is disconnected, and a
// call that panics fails alone. The directory, the one large thing that every role may have, is encoded once for all streams, and who is too far behind
// with it loses the connection. The privileged steps (reading and replacing a file, naming the machine) never follow a symbolic link and touch only
// what the grant names. The content of files is not logged.
//
// The server asks the cluster for the instance's SVIDs, at a limited rate. It also serves the SPIFFE Workload API, for other libraries: X.509-SVIDs
// and bundles, no JWT- or WIT-SVIDs. Its proto file cannot carry our access option, so a table in this package says who may call it.
//
// A file is replaced atomically by a rename. A file that is a mount point cannot be renamed over: it is written in place under the same conditions,
// and the answer says so. Setting the host name takes CAP_SYS_ADMIN, which root usually has.
//
// The package owns the directory run/host. It watches membership, the directory, the node's addresses, identity and the access states, and streams
// the caller's part of them. It publishes nothing.
package hostapi
