// Package problem derives what somebody has to look at on a node. The core, the curator and the command line go by it, so that every view of a node names the same
// problems in the same words. It owns no state.
package problem
