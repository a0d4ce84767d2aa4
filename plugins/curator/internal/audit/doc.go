// Package audit keeps the calls that are audited: who called what, from where, and what came of it.
//
// It owns the writer of the audit log of this curator, and what is counted of callers who proved nothing. The entries are in the store
// (internal/store, the shelves of the audit log), where those of all curators are in one order. It watches and publishes nothing.
//
// # When an entry is written
//
// An entry is in the store before the caller has an answer. There are two ways:
//
//   - A call that changes something hands its Call to the store's Update, which writes the entry in the very transaction of the change: a change without
//     an entry cannot exist, nor an entry that says OK without the change.
//   - All others, reads, refusals and calls that changed nothing, are written by the Log: one transaction at a time, with the entries of all calls that came
//     meanwhile, so that many calls cost no more than one write each way. The call waits for it.
//
// By which a node gets an SVID is kept as soon as it can be, and the node does not wait for it. One that renews an SVID that lives has no entry.
//
// A caller who was let in and whose call is to have an entry that cannot be kept gets Unavailable in place of the answer: nobody looks at the cluster unseen. Who was refused is
// told why, kept or not. An answer that the store is away does not wait for the store once more. A stream has one entry, before its first message.
//
// # What is in an entry
//
// The fields of the request that declare it (shown_in_audit), the code of the answer and, where it is not OK, a reason that quotes nothing else of the
// request (internal/answer). Requests that are too large or that cannot be read end in gRPC before anybody has asked who calls, and are not kept.
//
// # Who calls all the time
//
// Anybody who reaches the port may be refused as often as he likes, and a viewer may ask. Of such calls only so many are written, of each caller, answered and refused ones each, and beyond that
// a few of each RPC and code; the others are counted, and the next entry of such a call, which comes after a while by itself, says how many they were. So nobody pushes out of the log what they
// did before, nor hides one call among others of another kind.
package audit
