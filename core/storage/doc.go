// Package storage owns the directories of a node: system/ (small, unencrypted), data/ (the volume) and run/ (sockets and records of what runs, on a
// tmpfs).
//
// It lets one core at a time use them, never formats what exists, and writes files atomically and durably. A lock file locks system/ and run/. data/
// is locked itself, because it may be encrypted or mounted over; the lock is released while the volume is closed.
// The package watches and publishes nothing: Open is the second step of a node's start, after its parameters.
package storage
