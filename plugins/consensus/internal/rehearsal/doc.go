// Package rehearsal restores a snapshot of the store into an etcd that is thrown away, and tells what it holds.
//
// etcd answers data that it cannot use with panics of its goroutines, keeps its metrics in variables of its process, and holds its index in memory. So that neither of these reaches the member,
// the etcd runs in a process of its own: this executable once more, with the argument Argument (see Main). Its memory is bounded by the kernel, its time by who started it. It ends with its parent.
//
// It owns the directory that it is given, and nothing else.
package rehearsal
