// Package numbers says which number a ConsensusUser has in the store and which user's a lease is.
//
// A user gets a number when it is first made and keeps it as long as it has data, whether it is granted or not; a number is never given again. It is
// part of the ID of every lease of the user, so that every member knows whose a lease is by its ID alone. The package owns no state: the numbers are
// kept in the store, below a prefix that only etcd's root reaches.
package numbers
