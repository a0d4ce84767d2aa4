// Package leaktest fails a test program that leaves goroutines behind, as goleak does, but waits longer for them: etcd and gRPC wind down
// more slowly on a busy machine than goleak's half second. It owns no state.
package leaktest
