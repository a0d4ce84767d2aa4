// Package limits holds the bounds of what a plugin says of itself, what a running role states and what a node reports. The SDK keeps a role
// within them, the core enforces them on every plugin, whatever it was written with, and the curator on every node; the comments of the .proto
// files name the same numbers. It owns no state.
//
// They follow from one another: what each role may state fits into a message between role and core, what a node reports fits into one record
// of the store, and what the cluster tells fits into Message.
package limits
