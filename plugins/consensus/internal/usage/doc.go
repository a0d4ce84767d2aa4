// Package usage counts what each ConsensusUser has in the store, and stops the one that has used up what it may.
//
// It owns no state of its own: bytes are the sum of a user's present keys and values, leases those whose IDs carry its number, and both are computed from
// what the local member has stored. So every member, and the same one after a restart, comes to the same at the same revision; history does not
// count, and neither does a compaction. The bytes are added up once, when the store is opened, and then kept by following the store's changes; where the
// history that this needs is gone, they are added up anew. So are the keys of each lease. What a user may have is in the document of the cluster API, which is followed, too.
//
// What was let in but is not in the sum yet is reserved, so that writers that come at once do not pass the quota together. Of a request it says how
// many bytes it reads, before it is made; package door bounds them. The package publishes Usage, at most once a second.
package usage
