// Package cluster is the core's client of the cluster API: how a node hears what the cluster decided, and tells it how it is.
//
// It watches the node's identity, the capabilities of this node (where the curator is) and the status that is to be reported. It publishes the
// cluster's view of the node (its record, the catalog entries of its roles, the directory), whether the cluster is in reach, the certificates
// that the cluster gives, and the addresses of the curators.
//
// Any curator serves any node. Run goes to that of this node, if it is ready; otherwise to one of those that the directory names, over which nodes spread, those on
// nodes that live first; otherwise to one that is kept from earlier. While there is no contact it asks other nodes, which it keeps as well, where curators are. One that works is kept. One that does not answer within a second is left for the next, one that
// did and hangs with the first heartbeat that fails: all of that is over long before contact is lost. While none works they are tried in turn, ever more slowly.
//
// Run owns everything. For one way to a curator (its endpoint, its instance, the node's identity) it makes one session: a connection and
// four workers on it, each of which fails and tries again by itself:
//
//	watch      keeps a Watch stream open and publishes its newest message
//	report     sends the status when it changed, no more often than the store can bear, and again after every reconnect
//	heartbeat  says that the node lives, three times in every lease, on one stream, or by calls to a curator that knows no such stream
//	renew      gets a new SVID when the present one is past half of its life
//
// When the way changes (a curator that restarts has another port; a renewed SVID is another identity; another curator is to be asked) the session ends, its
// connection is closed, and the next begins: so nothing is ever said over a connection that was authenticated as somebody that the node no longer is. Every call
// carries the incarnation of the core. That the cluster has removed the node, or takes it for another one, is believed of a curator that has proved to be one, and
// published.
//
// A last worker judges from what the others saw whether there is contact: it is lost when there was none for a whole lease, and not more than once in half of one.
package cluster
