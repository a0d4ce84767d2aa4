// Package dev makes dev directories and runs the nodes in one: a cluster for developing and trying out, of which everything lies
// below one directory.
//
//	D/owner.key     the owner's private key
//	D/recovery.key  the recovery key of an encrypted volume
//	D/reeved.yaml   the parameters of reeved; written once, then only read
//	D/reeved.log    what reeved wrote to its standard error
//	D/hosts         the file that the role hostsfile manages
//	D/network.json  the subnet of nodes that have a network namespace each
//	D/system        the node's system directory
//	D/data          the node's volume
//	D/run           a link to the node's run directory, whose path has to be short
//	D/nodes/N       the directory of node N, from the second one on, with the same in it but for the owner's key; and
//	D/nodes/N/ticket  the ticket with which it registers, until it is a member
//
// The recovery key lies beside what it opens, so that the node can be started again without anybody: that shows how an encrypted volume behaves, and
// protects nothing.
//
// As root every role has a user ID of its own and has to be able to search every directory above its own; where D lies below one that others
// cannot search (/root, say), D is a link to a directory of its own in /var/lib/reeve/dev.
//
// The package owns the files that it makes and the reeved that it starts; it watches that process by a pidfd.
package dev
