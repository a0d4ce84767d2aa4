// Package enrol is the client of the cluster's EnrolmentService, for a node that is no member yet or whose volume is locked: it has a key and knows the cluster by
// the hash of its CA's public key, and has nothing else of it.
//
// A curator is believed if the chain of certificates that it shows has a self-signed root whose public key is pinned, and its own certificate, by that root, is one
// of a curator of the cluster. The node is believed since it proves its key by a self-signed certificate: the node key to register, the join key to get the
// cluster's half of the key of its volume.
//
// Every call goes to the curators in turn until one answers. The package keeps no state but which one that was, and repeats nothing: what may be said again, and
// when, is known by who calls. An error that is none of *RemovedError, *PinError and *RefusedError may pass by itself.
package enrol
