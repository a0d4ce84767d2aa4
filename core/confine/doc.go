// Package confine runs one executable in a role's sandbox without a node. The policy is core/plugin's, made from the role's manifest as if everything
// that it wants were granted; the sandbox is core/sandbox's. `reeved confine` runs this package. The conformance suite starts it for every process to
// be confined, and speaks the protocol of proto/confine.
//
// It owns the process that it starts and every process that this one leaves behind: it is their reaper, so none can hide by leaving its group,
// session, user or environment. All of them have ended when Run returns. It does not limit memory or the number of processes, because only a node has
// control groups. So processes that start new ones faster than Run kills them keep Run from returning, and go on if somebody kills this process.
package confine
