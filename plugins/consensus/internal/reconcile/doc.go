// Package reconcile makes true what the cluster API asks of the store: that the granted ConsensusUsers are there, each confined to its prefix, and that
// no others are. What a user has stored stays when it is withdrawn, unless the cluster API asks that it be wiped, too.
//
// It owns no state. It watches the document in which the cluster API keeps its wish, in the store itself, and acts while the local member is the
// store's leader. A wish is acted upon only as it was read from a quorum; without a document, or with one that cannot be read, nothing is ever
// taken away; and a wipe compares, with every batch of keys, whether the document is still the one that asked for it. Every step can be repeated, so a run that was cut off is completed by the next, here or on another member.
//
// Of two members that for a moment both take themselves for the leader, only one changes anything: the users are kept within a fence of the leadership
// (store.Fence), made before the document is read, and what is written to keys compares the document and the keys that it was decided by.
package reconcile
