package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Check is one demand on a plugin.
type Check struct {
	// ID names the check for good: its group, a dot, and what it is about.
	ID string
	// Group is the part of the suite that the check belongs to.
	Group string
	// Profile is whose verdict the check counts for.
	Profile Profile
	// Sentence says what is demanded and why.
	Sentence string

	// needs are the IDs of the checks without which this one would only find the same again.
	needs []string
	// absent returns why the check has no object: what the manifest declares that the plugin does not have. Empty: it has one. Nil: it always has.
	absent func(*rolev1.Manifest) string
	// storage says that there must be a consensus store, sandbox that there must be the sandbox of nodes.
	storage, sandbox bool
	// run returns nil, or what was seen of the plugin that is not as demanded. found is what a passed check has to tell.
	run func(ctx context.Context, s *subject) (found string, err error)
}

// Profile is a set of demands that a plugin meets or does not meet as a whole.
type Profile string

const (
	// Core are the demands on every plugin, whatever its roles do.
	Core Profile = "core"
	// ConsensusUser are those on a plugin one of whose roles uses the consensus store.
	ConsensusUser Profile = "consensus user"
	// NetworkService are those on a plugin one of whose roles listens on ports.
	NetworkService Profile = "network service"
	// Privileged are those on a plugin one of whose roles wants powers of the host, paths or capabilities.
	Privileged Profile = "privileged"
)

// Profiles are all profiles.
func Profiles() []Profile { return []Profile{Core, ConsensusUser, NetworkService, Privileged} }

// Group is a part of the suite.
type Group struct {
	Name string
	// Title is what the group is about.
	Title  string
	checks []Check
}

// Groups are the parts of the suite, in the order in which they are run.
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

// Checks are the checks of the group, in their order.
func (g Group) Checks() []Check { return slices.Clone(g.checks) }

// Checks are all checks, in the order in which they are run.
func Checks() []Check {
	var all []Check
	for _, group := range Groups() {
		all = append(all, group.checks...)
	}
	return all
}

// withNeeds are the checks with these IDs and all that they need. An error names an ID that no check has.
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
