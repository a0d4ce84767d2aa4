// Package corecaps says which capabilities of Linux a core that runs as root uses, and what is lost without each: for the core, which is not started without some of them, and
// for `reeve doctor`. It owns no state.
package corecaps

import (
	"slices"
	"strings"
)

// Capability is one that the core uses.
type Capability struct {
	// Number is that of linux/capability.h.
	Number uint
	Name   string
	// Without says what is lost without it.
	Without string
	// Needed says that no role runs without it.
	Needed bool
}

// All are the capabilities that the core uses, by number. Which are needed was found by taking each away.
var All = []Capability{
	{0, "CAP_CHOWN", "roles cannot be given directories of their own", true},
	{1, "CAP_DAC_OVERRIDE", "the core does not reach the directories of roles", true},
	{3, "CAP_FOWNER", "the core cannot set who reaches the directories of roles", true},
	{4, "CAP_FSETID", "roles cannot connect to the consensus store", true},
	{5, "CAP_KILL", "a role that does not stop by itself cannot be ended", false},
	{6, "CAP_SETGID", "roles cannot be given groups of their own", true},
	{7, "CAP_SETUID", "roles cannot be given user IDs of their own", true},
	{8, "CAP_SETPCAP", "the core cannot drop its extra capabilities from the roles", false},
	{10, "CAP_NET_BIND_SERVICE", "roles that are granted ports below 1024 cannot listen there", false},
	{19, "CAP_SYS_PTRACE", "the core cannot read the environment of processes, by which it finds those of a dead instance where roles share a user ID", false},
	{21, "CAP_SYS_ADMIN", "roles see the machine's file systems and System V IPC, volumes cannot be encrypted, what roles write to their standard error is not bounded, and the host name cannot be set", false},
}

// Lacking returns those of the capabilities that a set lacks, a bit for each: those that are needed, and the others.
func Lacking(set uint64) (needed, others []Capability) {
	for _, one := range All {
		switch {
		case set>>one.Number&1 == 1:
		case one.Needed:
			needed = append(needed, one)
		default:
			others = append(others, one)
		}
	}
	return needed, others
}

// Names joins the names of capabilities.
func Names(of []Capability) string {
	var names []string
	for _, one := range of {
		names = append(names, one.Name)
	}
	return strings.Join(names, ", ")
}

// Named returns those of the capabilities that the core uses that have one of the names.
func Named(names []string) (of []Capability) {
	for _, one := range All {
		if slices.Contains(names, one.Name) {
			of = append(of, one)
		}
	}
	return of
}

// Explain joins what is lost without capabilities.
func Explain(of []Capability) string {
	var texts []string
	for _, one := range of {
		texts = append(texts, "without "+one.Name+" "+one.Without)
	}
	return strings.Join(texts, "; ")
}
