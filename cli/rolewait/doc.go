// Package rolewait waits until a change of a node's roles is so: until the node reports the role Ready with the configuration that was
// set, or no longer reports it at all. It watches a stream of the node's state, publishes its progress as lines for people, and owns nothing
// beyond a call.
package rolewait
