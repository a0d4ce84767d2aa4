// Package metrics shows in numbers what the node does, in the text format of Prometheus: the node and its membership, its roles and their processes, the
// consensus store, events, calls of the node's own servers, and what the roles say of themselves.
//
// It owns the registry of the node's metrics (not the default one of the library) and, if the node's parameters name an address, the HTTP server at
// /metrics. It watches nothing: when somebody asks, it reads the present value of the node's status, its identity, its instances and its capabilities, reads the
// processes of the instances from /proc, and asks every role that runs for its metrics. What happens is told to it by Recorder, Launched and the
// interceptors. It publishes nothing but the text.
//
// What a role says is text of a stranger: read.go bounds and reads it, merge.go puts it beside the rest. Every series of it gets the label "role", so
// that a role speaks for itself only; what would make the whole invalid is left out and counted. A role that does not answer within a second, or
// answers nonsense, costs its own metrics and nothing else.
package metrics
