// Package scaffold writes the Go module of a new plugin: a role that runs, its tests, and what builds and tests them. The module is whole as it is written: its go.mod and go.sum
// name what the checkout of Reeve that it is written against names, so that the module builds without asking anybody which versions there are.
//
// The package owns nothing. It writes one directory, which is there as a whole or not at all.
package scaffold
