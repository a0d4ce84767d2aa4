// Package store keeps the state of the cluster in the consensus store, below the prefix of the curator's ConsensusUser.
//
// It owns the layout of the keys and what a record may look like, and it is the only package that writes. It watches nothing by itself
// (internal/cache does) and publishes nothing: what it returns was read linearizably, or is known and stands as the store says, and is what decisions are made of.
//
// # Layout, format 1
//
// Every value is a binary protocol buffer message of a versioned package. The record "cluster" carries the number of the format; a
// curator that does not know the number reads nothing else and writes nothing. Fields that came later mean, where they are absent, what was so
// before them: a plugin without decided is one about whose roles nothing was decided but what is granted.
//
//	cluster                  reeve.curator.v1.Cluster               makes the cluster; created once
//	authority/certificates   reeve.curator.v1.CertificateAuthority  the cluster CA, public half
//	authority/key            reeve.curator.v1.SigningKey            the cluster CA, private half
//	authority/next           reeve.curator.v1.SigningKey            the private half of a cluster CA that is prepared and does not sign yet; absent: none is
//	epoch                    reeve.curator.v1.Epoch                 counted up by every management write
//	nodes/<node ID>          reeve.cluster.v1.NodeRecord            what the cluster decided about a node
//	plugins/<plugin>         reeve.cluster.v1.PluginRecord          the catalog
//	policy                   reeve.cluster.v1.ClusterPolicy         what the owner demands of all nodes; absent: what is the default
//	wiped                    reeve.curator.v1.WipedUsers            whose keys the consensus role removes; absent: nobody's
//	operators/<name>         reeve.cluster.v1.Operator              who may call the management service besides the owner
//	tickets/<ticket ID>      reeve.curator.v1.Ticket                what new machines register with; its secret as a hash only
//	cuk/<node ID>            reeve.curator.v1.UnlockKey             the cluster's half of the key of the node's volume
//	incarnations/<node ID>   reeve.curator.v1.KnownIncarnation      the start of the core that is taken for the node; absent: the next one is
//	refused/<node ID>        reeve.curator.v1.RefusedIncarnation    the start that was refused last; absent: none, or it was accepted
//	status/<node ID>         reeve.cluster.v1.NodeStatus            what the node last said of itself
//	heartbeat/<node ID>      reeve.curator.v1.Heartbeat             attached to the lease that the node's heartbeats renew
//	consensus/desired        reeve.consensus.v1.DesiredState        what the consensus role is to make true
//	consensus/state          reeve.consensus.v1.StoreState          how far it has come, as the consensus role itself writes
//	issued/…                 reeve.curator.v1.IssuedCertificate     a certificate in use, or one that has expired and is swept soon
//	steward/<lease>          the node of a curator that stands for election, attached to its lease
//	audit/<shelf>/<entry>    reeve.cluster.v1.AuditEntry            the audit log, without sequence numbers
//
// Keys that are none of these are left alone, so that a later version can add some within the format.
//
// # Writes
//
// A management write (Update) is one transaction: it compares the epoch, which no record that the decision was made from changes without,
// and writes the changed records, the next epoch and, where it changes, the desired state of the consensus role. Comparing only the records
// that it touches would not do: two curators could each take away one of two roles of which one must stay, on two nodes, each in a
// transaction that is right by itself. Comparing the one epoch puts all decisions of all curators in one order.
//
// The desired state is never decided on: it is computed from the records (Desired) in the transaction that changes them, and can so not
// differ from them. So it is with the ConsensusUsers whose keys are to be removed: one that a change grants leaves that list in the same transaction,
// whoever makes the change (With).
//
// An entry of the audit log is in every such transaction: a change that the log knows nothing of cannot be made.
//
// What the consensus role tells is among what decisions are made from, and is compared besides, since that role writes it and no epoch: who may leave the store is decided by who answers in it.
//
// What only one curator does at a time (internal/steward) is fenced (UpdateFenced): its transaction also compares the key that its election was won by, so
// that a curator which has been superseded and does not know it yet writes nothing.
//
// # The audit log
//
// An entry is a key of its own, below the shelf that it belongs to, which is bounded for itself: what viewers and strangers do cannot push out what was
// changed. Its sequence number is made of the revision at which the store created the key (ListAudit): no counter that writers would have to take turns
// at, and no clock. The log comes first of all keys, and is neither read nor watched with the rest.
//
// Status and heartbeats change all the time and nothing is decided by them: they do not touch the epoch. Nor does a node that starts.
//
// The halves of the keys of volumes are read for the one call that needs one (ReadCUK), and are part of no State. They go with their node.
package store
