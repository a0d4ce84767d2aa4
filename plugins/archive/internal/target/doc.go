// Package target has the places to which copies of snapshots go: a directory of the machine, and an S3-compatible bucket. In both each node has its own part, named by its node ID, with
// files of the form NAME.snapshot.
//
// A copy has its name only when all of it is there. What else lies there is neither listed nor touched. An error says what is wrong, and what to do about it; it has no secret.
package target
