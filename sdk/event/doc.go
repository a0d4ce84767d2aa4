// Package event has one type, Value: a current value that can be read and watched.
//
// It is how the parts of a node tell each other what is so. A channel would make the writer wait for the slowest reader or lose what
// nobody read; a condition variable cannot be waited for together with a context. A Value never blocks its writer, and a
// watcher sees the newest value at its own pace: values that were replaced before it looked are skipped, the last one never is.
package event
