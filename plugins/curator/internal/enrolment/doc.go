// Package enrolment serves reeve.cluster.v1.EnrolmentService: how a machine becomes a node, and how a node whose volume is locked gets the cluster's half of
// its key.
//
// Who calls has proved a key and nothing else (CALLER_NEWCOMER), so that every call finds out for itself what the key is: a node key that shows a ticket or
// that has a record, or the join key of a node. All decisions are made from linearizable reads; the cache only feeds Await and says where curators are.
//
// A registration is one management write: it counts the use of the ticket and makes the record, so that of two machines with a ticket for one, through two
// curators, one comes in. A commit is one too: the node is Up, its half of the key is kept, and what the consensus store is to be follows, together or not at
// all. Every call can be made again when its answer was lost.
//
// Until a caller has shown a ticket or is known by its key, it is a stranger to the audit log and to the bounds of connections. What strangers can cost is
// bounded: how many of them wait for approval, how many register at once, and how often a host may fail.
package enrolment
