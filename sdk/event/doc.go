// Package event has one type, Value: a current value that can be read and watched.
//
// The parts of a node use it to tell each other their state. A channel would block the writer on the slowest reader, or lose values that nobody read.
// A condition variable cannot be combined with a context. A Value never blocks its writer, and a watcher sees the newest value at its own pace: it
// skips values that were replaced meanwhile, but never the last one.
package event
