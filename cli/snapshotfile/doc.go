// Package snapshotfile writes the file of a snapshot of the consensus store, as it comes from the cluster, and reads it without one (see the package proto/snapshot).
//
// A file gets its name when all of it is there, checked and on disk. Until then it is beside it, hidden, with ".reeve-snapshot.part" at the end of its name. It goes when the command
// ends early; one that is left of a command that was killed is written anew by the next. One that another user made, or can read, is refused.
package snapshotfile
