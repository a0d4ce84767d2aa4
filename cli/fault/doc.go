// Package fault is how a command of reeve fails: with an exit code that scripts may decide on, a sentence for people, and the next thing to
// try. It owns no state.
package fault
