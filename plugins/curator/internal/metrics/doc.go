// Package metrics counts what a curator does, in a registry of its own: calls by RPC and code, how long they took, streams and connections that are
// open, entries of the audit log, sessions, and when the cluster CA and the curator's own SVID end.
//
// It owns the registry for the life of the process, over all instances of the server that run in it. It watches and publishes nothing: the core of the node
// asks for the metrics (role.Role.Metrics) and adds whose they are.
package metrics
