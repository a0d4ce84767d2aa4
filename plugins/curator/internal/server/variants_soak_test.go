//go:build soak

package server_test

// checks is how many histories of each property are tried.
const checks = "20"

// strangersShare is which part of the RPCs a caller calls who is nobody, as one before was: one of so many.
var strangersShare = 1
