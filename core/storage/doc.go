// Package storage owns the directories of a node: system/ (small, unencrypted), data/ (the volume) and run/ (sockets and records of what
// runs, on a tmpfs).
//
// It sees to it that one core at a time uses them, that nothing which exists is ever formatted again, and that files are written
// atomically and synced. It watches nothing and publishes nothing: Open is the second step of a node's start, after its parameters.
package storage
