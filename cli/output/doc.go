// Package output is what the commands of reeve print: documents with a stable JSON form (README.md of this module describes it), and
// tables for people. It turns the messages of the protocol into them, so that the protocol may change without breaking scripts. It owns no state.
package output
