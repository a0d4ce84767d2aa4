// Package peers is how the members of a store talk to each other: over TCP with TLS 1.3, both sides with a certificate of the peers' own CA.
//
// A certificate names one member of one node, and is good for as long as that member is one: etcd itself does not tie a certificate to a member. Each handshake is held
// against the members that the store has, and the connections of a member that was removed are closed. The key of the CA is kept in the store, under root's
// prefix; each member has what it needs to speak to the others in its data directory, so that a store starts without asking anybody.
//
// So whoever has the disk of a former member has that key. The CA is replaced when a member has left for good (see replace.go), after which nobody believes what the key has signed.
package peers
