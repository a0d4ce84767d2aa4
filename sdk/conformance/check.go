package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Check is one requirement for a plugin.
type Check struct {
	// ID is the permanent name of the check: its group, a dot, and its subject.
	ID string
	// Group is the check's part of the suite.
	Group string
	// Profile is the profile whose verdict the check counts for.
	Profile Profile
	// Sentence says what is required and why.
	Sentence string

	// needs are the IDs of checks that must pass first; without them this check would only find the same fault again.
	needs []string
	// absent returns why the check does not apply: what the plugin lacks, by its manifest. Empty: it applies. nil: it always applies.
	absent func(*rolev1.Manifest) string
	// storage says that the check needs a consensus store, sandbox that it needs the sandbox of nodes.
	storage, sandbox bool
	// run returns nil, or how the plugin violates the requirement. found is extra information about a passed check.
	run func(ctx context.Context, s *subject) (found string, err error)
}

// Profile is a set of requirements that a plugin meets or does not meet as a whole.
type Profile string

const (
	// Core is for every plugin, whatever its roles do.
	Core Profile = "core"
	// ConsensusUser is for a plugin with a role that uses the consensus store.
	ConsensusUser Profile = "consensus user"
	// NetworkService is for a plugin with a role that listens on ports.
	NetworkService Profile = "network service"
	// Privileged is for a plugin with a role that wants powers of the host, paths or capabilities.
	Privileged Profile = "privileged"
)

// Profiles returns all profiles.
func Profiles() []Profile { return []Profile{Core, ConsensusUser, NetworkService, Privileged} }

// Group is a part of the suite.
type Group struct {
	Name string
	// Title is the group's subject.
	Title  string
	checks []Check
}

// Groups returns the parts of the suite in the order in which they run.
func Groups() []Group {
	groups := []Group{
		{"handshake", "How the process is launched, and what it agrees upon with the core before they speak gRPC.", handshakeChecks()},
		{"manifest", "What the plugin says of itself.", manifestChecks()},
		{"lifecycle", "Starting, stopping, and what is left after every kind of end.", slices.Concat(lifecycleChecks(), endChecks())},
		{"configuration", "What the plugin says of a configuration that is wrong.", configurationChecks()},
		{"logging", "What the plugin writes to its standard error.", loggingChecks()},
		{"resources", "What a role costs the node.", resourceChecks()},
		{"isolation", "What a role does in the sandbox in which nodes run it, and what it reaches for outside of what is its own.", isolationChecks()},
		{"peers", "What a plugin does with a core that is newer or older than it.", peerChecks()},
		{"network", "What a role does that listens on ports.", networkChecks()},
		{"powers", "What a role does that wants to reach beyond its own.", powerChecks()},
		{"store", "What a role does with its part of the consensus store, and without it.", storeChecks()},
		{"restart", "What a role does when the core of its node goes away, and when the next one adopts it.", restartChecks()},
	}
	for _, group := range groups {
		for n := range group.checks {
			check := &group.checks[n]
			check.Group, check.Profile = group.Name, cmp.Or(check.Profile, Core)
		}
	}
	return groups
}

// Checks returns the group's checks in order.
func (g Group) Checks() []Check { return slices.Clone(g.checks) }

// Checks returns all checks in the order in which they run.
func Checks() []Check {
	var all []Check
	for _, group := range Groups() {
		all = append(all, group.checks...)
	}
	return all
}

// withNeeds returns the checks with these IDs and all that they need. It fails for an unknown ID.
func withNeeds(ids []string) (map[string]bool, error) {
	needs := make(map[string][]string)
	for _, check := range Checks() {
		needs[check.ID] = check.needs
	}
	wanted := make(map[string]bool)
	for left := slices.Clone(ids); len(left) > 0; left = left[1:] {
		id := left[0]
		of, ok := needs[id]
		if !ok {
			return nil, fmt.Errorf("there is no check %q: docs/reference/conformance.md has them all", id)
		}
		if !wanted[id] {
			wanted[id] = true
			left = append(left, of...)
		}
	}
	return wanted, nil
}
