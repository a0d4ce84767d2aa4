// Package doctor says what a machine can enforce for a node, what it lacks, what that means, and what to do about it.
//
// Probe looks at the machine and brings Facts; Judge makes findings of them. Probing changes nothing: no file is made, no module loaded, no process left.
// The package owns nothing and watches nothing.
package doctor
