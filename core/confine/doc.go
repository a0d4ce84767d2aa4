// Package confine runs one executable in the sandbox in which a node runs a role, without a node: the policy is the one of core/plugin, made of the role's manifest as if
// all that it wants were granted, and the sandbox the one of core/sandbox. `reeved confine` is this package, and the conformance suite starts it for every process that is to be
// confined. What is said between the two is in proto/confine.
//
// It owns the process that it starts, and every process that this leaves behind: it is their reaper, so that none can hide by leaving its group, its session, its user or its
// environment. All of them have ended when Run returns. It bounds no memory and no number of processes: control groups are a node's. Without a control group, processes that start
// new ones faster than Run kills them keep Run from returning, and go on if somebody kills this process then.
package confine
