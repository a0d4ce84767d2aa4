// Package roletest runs a plugin in a test, over the real protocol: the executable is launched with go-plugin's handshake as a node's core
// launches it, and finds a host at the other end of a real Unix socket. Host is that host, with values and files that the test sets; Process is
// the launched plugin.
//
// The executable may be the test's own binary, whose TestMain calls role.Serve if an environment variable of the test's says so.
//
// The package owns the directories and processes that it makes, and ends them with the test.
package roletest
