// Package rules says what may be written: which names, manifests, grants and configurations are well formed, which plugins may stand beside each
// other in a catalog, and which roles on a node. It is pure: it owns, watches and publishes nothing, and every decision is made from the
// state that the caller read.
//
// No role's name is known here. What must not be lost is known by capability.
package rules
