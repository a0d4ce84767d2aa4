// Package process keeps programs running for a role: the executable of the role itself, started under the name of another program.
//
// A program that ends is started again after a wait that grows, and is ended together with the role: asked to first, killed if it does not listen, and killed by the kernel when the role's
// process dies. What it writes goes to the role's log.
//
// The package owns the processes that it starts. It publishes the state of each.
package process
