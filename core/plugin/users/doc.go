// Package users gives the roles of a node user IDs that nobody else on the host has, and numbers their instances.
//
// It owns the host's file of ranges, which the nodes of a host share, and two files of the node: which role has which ID, and the last number of each role.
// Nothing that was given to one role is ever given to another.
package users
