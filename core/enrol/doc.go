// Package enrol is the client of the cluster's EnrolmentService for a node that is not a member yet or whose volume is locked. Such a node has a key,
// and knows the cluster only by the hash of its CA's public key.
//
// The client trusts a curator if its certificate chain has a self-signed root with a pinned public key, and by that root the leaf is a curator's of
// the cluster. The node proves its key with a self-signed certificate: the node key to register, the join key to get the CUK.
//
// Every call goes to the curators in turn until one answers. The package remembers only which one that was, and repeats nothing: the caller knows
// what may be repeated, and when. Errors other than *RemovedError, *PinError and *RefusedError may go away by themselves.
package enrol
