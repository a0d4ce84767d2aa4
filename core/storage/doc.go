// Package storage owns the directories of a node: system/ (small, unencrypted), data/ (the volume) and run/ (sockets and records of what
// runs, on a tmpfs).
//
// It sees to it that one core at a time uses them, that nothing which exists is ever formatted again, and that files are written
// atomically and synced. system/ and run/ are locked by a file in them, data/ by itself: it may be encrypted, or mounted over, and is let go of while it is closed.
// It watches nothing and publishes nothing: Open is the second step of a node's start, after its parameters.
package storage
