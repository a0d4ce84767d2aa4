// Package output is what the commands of reeve print: documents with a stable JSON form (README.md of this module describes it), and
// tables for people. A document shows messages of the protocol as they are, by the names of their fields, and adds what only the command knows. It owns no state.
package output
