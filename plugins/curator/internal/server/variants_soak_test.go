//go:build soak

package server_test

// strangersShare is which part of the RPCs a caller calls who is nobody, as one before was: one of so many.
var strangersShare = 1
