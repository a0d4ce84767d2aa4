// Package leaktest fails a test program that leaks goroutines, like goleak, but waits longer for them: on a busy machine, etcd and gRPC need more
// than goleak's half second to wind down. The package owns no state.
package leaktest
