// Package hostapi is the server of the host sockets: it serves reeve.host.v1 to each role instance, on a Unix socket of the instance's own.
//
// Who calls is decided by the socket on which the call arrives. The socket lies in a directory that the core owns and that only the instance's
// group may search, and each connection's peer must have the instance's user ID by the kernel's word, and
// where instances share a user, be in the instance's process group. What the caller may is decided by
// its remit: every RPC declares in its proto option who may call it, and the server does not start with an RPC that declares nothing.
//
// A role is not trusted to behave: the size of messages, the number of connections and of streams on them are bounded, a peer that no longer
// answers is let go, and a call that panics fails alone. The privileged steps that the core does for a role (reading and replacing a file, naming the
// machine) never follow a symbolic link, and never touch what the grant does not name. The content of files is not logged.
//
// It has the cluster issue SVIDs for an instance, only so many in a time, and serves the SPIFFE Workload API beside the host protocol, for libraries of
// others: X.509-SVIDs and bundles; there are no JWT- or WIT-SVIDs. Its proto file cannot carry our access option, so who may call it is said in a table of
// this package.
//
// A file is replaced as one step, by renaming. One on which something is mounted cannot be: it is written in place, under the same conditions, and
// the answer says so. The machine's host name takes the right CAP_SYS_ADMIN, which root has unless it was taken from it.
//
// It owns the directory run/host. It watches membership, the directory, the node's addresses and identity, and the access states, and streams the part of
// them that is the caller's. It publishes nothing.
package hostapi
