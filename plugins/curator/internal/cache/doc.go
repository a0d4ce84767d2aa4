// Package cache follows the state of the cluster for those who watch it.
//
// It owns one watch of the store, however many clients watch. It publishes a Snapshot after every change: whoever is slow sees the newest and
// misses what was in between. A watch that breaks is resumed from the revision that was reached; where the store has dropped that
// revision, everything is read again. Nothing is decided by what is in the cache: it may be behind the store, and is while the store is away.
package cache
