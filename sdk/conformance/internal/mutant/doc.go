// mutant is a plugin with at most one fault, which is written into its executable (package faults). It is written against the protocol and not with
// the SDK, most of whose promises could not be broken from outside. With the fault none it conforms.
//
// It owns the socket that it listens on. It is a program of its own, and not the test's, as a role's environment is empty and tells it nothing.
package main
