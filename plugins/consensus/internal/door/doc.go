// Package door serves etcd's API to the role instances of the node: to each on a Unix socket of its own.
//
// It owns the sockets, the connections that were accepted on them and the one gRPC server behind all of them. It watches the status of the store,
// because only users that are there may come in, and publishes State: what became of each instance of the set that Set last gave.
//
// Who is at the other end of a connection is the kernel's word. The peer must be the instance whose socket it is, and etcd is then told that it
// talks to the instance's ConsensusUser; from there on etcd's own permissions decide. Closing an instance closes its listener and every connection
// that was ever accepted on it, which ends its watches and leases' keep-alives at once.
//
// What a user has under way is bounded over all of its connections (bounds.go): connections, calls, streams, watches, and the bytes of answers from before they are
// read until the kernel has them. Who would pass a bound waits or is told so with ResourceExhausted, and who does not read loses its connection; the others notice nothing. The
// cluster user is not bounded.
package door
