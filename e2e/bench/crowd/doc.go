// Package crowd is many nodes in one process, for measures of what a curator bears. To the cluster they are nodes like any other: each has a key of its own,
// registers with a ticket and commits itself by the client of the core, and then, on one connection of mutual TLS with its SVID, from an address of its own, sends
// its heartbeats on one stream, sends its status, and watches its record and the directory. What a node does with what it is told is left out: it keeps nothing and
// runs no role, and says of a role that it is given that it is Ready.
//
// Serve offers a crowd over HTTP to whoever measures, who asks by a Client.
package crowd
