// The curator plugin offers the role that serves the cluster API: it makes the cluster, keeps its records, issues its SVIDs, follows the health of its
// nodes, takes the operators' changes and keeps an audit log of them.
//
// All state is in the consensus store, below the prefix of the role's ConsensusUser: any curator serves any call, and an instance that is killed
// loses nothing. internal/store says what is kept where, internal/server how an instance runs, internal/configuration what can be
// configured.
package main
